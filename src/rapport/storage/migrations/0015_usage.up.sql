-- The model calls of an owner and their tokens, by day (UTC), agent, conversation, purpose and model. It outlives the
-- conversation, so it has no foreign key to it. Each conversation has rows of its own, so that turns of different conversations
-- do not wait for each other; ephemeral conversations share rows with an empty id, spread over slots for the same reason.
CREATE TABLE model_usage (
    owner_id         text NOT NULL,
    day              date NOT NULL,
    agent_id         text NOT NULL,
    conversation_id  text NOT NULL,             -- empty for ephemeral conversations
    slot             smallint NOT NULL,         -- 0 for stored conversations
    purpose          text NOT NULL,             -- see domain/usage.py
    model            text NOT NULL,             -- as in RAPPORT_MODEL
    calls            bigint NOT NULL,           -- calls that reached the model's server, failed ones included
    tokens_in        bigint NOT NULL,
    tokens_out       bigint NOT NULL,
    estimated_calls  bigint NOT NULL,           -- those whose tokens are estimated
    PRIMARY KEY (owner_id, day, agent_id, conversation_id, slot, purpose, model)
);
-- The sum of a month of an agent, whoever uses it.
CREATE INDEX model_usage_by_agent ON model_usage (agent_id, day);

-- Monthly budgets of tokens of owners. Those of agents are in their profiles.
CREATE TABLE usage_budgets (
    owner_id        text PRIMARY KEY,
    monthly_tokens  bigint NOT NULL CHECK (monthly_tokens >= 0)
);

-- The budgets of which 80 % are used in a month: the operator is warned once. One of the two ids is empty.
CREATE TABLE budget_warnings (
    owner_id  text NOT NULL,
    agent_id  text NOT NULL,
    month     date NOT NULL,
    PRIMARY KEY (owner_id, agent_id, month)
);
