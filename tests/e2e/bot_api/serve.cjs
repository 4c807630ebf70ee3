// A Bot API on a free port of loopback. It says where in one line of JSON, then which calls of the webhook failed; it ends
// with its standard input.
const TelegramServer = require("telegram-test-api");

const say = (fact) => process.stdout.write(`${JSON.stringify(fact)}\n`);

async function main() {
  const server = new TelegramServer({ host: "127.0.0.1", storeTimeout: 3600 });
  server.config.port = 0; // given as an option, 0 would count as none
  await server.start();
  say({ port: server.server.address().port });
}

// Nobody waits for the calls of a webhook, so this is where their failures end up.
process.on("unhandledRejection", (error) => say({ failed: error.response?.status ?? String(error) }));
process.stdin.resume().on("end", () => process.exit(0));
main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
