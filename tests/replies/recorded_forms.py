"""List ways in which real models write calls, thoughts and tokens into their text, each with its origin and the visible rest.

The forms are those of the named sources; the words are our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rapport.agents.tools.registry import CHAT_TOOLS, UPSERT_MEMORY
from rapport.replies.written_calls import OfferedTools, WrittenCall

TOOLS = OfferedTools.from_schemas([tool.schema for tool in (UPSERT_MEMORY, *CHAT_TOOLS)])
FACT = "The user made lasagne for the first time."
SAVE = WrittenCall("upsert_memory", {"content": FACT})
_ARGUMENTS = f'{{"content": "{FACT}"}}'
_CALL = f'{{"name": "upsert_memory", "arguments": {_ARGUMENTS}}}'
_PRETTY = f'{{\n  "name": "upsert_memory",\n  "arguments": {{\n    "content": "{FACT}"\n  }}\n}}'
_PYTHON = f'upsert_memory(content="{FACT}")'
SAID = "Lasagne, well done!"
ASKED = "How did it turn out?"


@dataclass(frozen=True)
class Recorded:
    """A reply as a model wrote it, the text that a person may see of it, and the calls in it."""

    origin: str
    text: str
    visible: str
    calls: tuple[WrittenCall, ...] = field(default=())


def _call(origin: str, text: str, visible: str = "", *more: WrittenCall, **arguments: Any) -> Recorded:
    first = WrittenCall("upsert_memory", arguments) if arguments else SAVE
    return Recorded(origin, text, visible, (first, *more))


CALLS = [
    _call(
        "Qwen2.5-Coder-1.5B on llama.cpp's server, measured",
        f"Here's how you can use the `upsert_memory` function:\n\n```json\n{_PRETTY}\n```",
    ),
    _call(
        "Qwen2.5-Coder-1.5B on llama.cpp's server, measured (with words around it)",
        f"{SAID} Here is the JSON for the function call:\n```json\n{_CALL}\n```\nThis function saves the fact. {ASKED}",
        f"{SAID}\n{ASKED}",
    ),
    _call("jundot/omlx, issue 2565 (Qwen2.5-Coder)", _CALL),
    _call(
        "ollama/ollama-vscode, pull request 20 (qwen2.5-coder:7b)",
        f"{SAID}\n\n{_PRETTY}\n\n{ASKED}",
        f"{SAID}\n\n{ASKED}",
    ),
    _call(
        "sgomez/ollama-ai-provider, pull request 11 (two objects in a row)",
        f'{_PRETTY} {{"name": "get_message", "arguments": {{"id": "#3"}}}}',
        "",
        WrittenCall("get_message", {"id": "#3"}),
    ),
    _call(
        "irreg/native_tool_call_adapter, issue 3 (arguments as a string)",
        '{"name": "upsert_memory", "arguments": "{\\"content\\": \\"' + FACT + '\\"}"}',
    ),
    _call(
        "Gitlawb/openclaude, issue 433 (the call in words)",
        f"To save this, I will use the upsert_memory tool:\n{_CALL}\n{SAID}",
        SAID,
    ),
    _call("NousResearch Hermes; vllm, test_hermes_tool_parser.py", f"{SAID}\n<tool_call>\n{_CALL}\n</tool_call>", SAID),
    _call("Qwen2.5; the same, the closing tag missing", f"<tool_call>\n{_CALL}\n\n{SAID}", SAID),
    _call(
        "Qwen3-Coder; vllm, test_qwen3coder_tool_parser.py",
        f"{SAID}\n<tool_call>\n<function=upsert_memory>\n<parameter=content>\n{FACT}\n</parameter>\n</function>\n</tool_call>",
        SAID,
    ),
    _call("Llama 3.1, `<function=…>`; its model card", f"<function=upsert_memory>{_ARGUMENTS}</function>"),
    _call(
        "Llama 3.1; vllm, test_llama3_json_tool_parser.py",
        f'<|python_tag|>{{"name": "upsert_memory", "parameters": {_ARGUMENTS}}}<|eom_id|>',
    ),
    _call("Llama 3.2 and 4; vllm, test_pythonic_tool_parser.py", f"[{_PYTHON}]"),
    _call(
        "ToolACE and small Llamas, a call alone on its line", f"{SAID}\n\n{_PYTHON}\n\n{ASKED}", f"{SAID}\n\n{ASKED}"
    ),
    _call("Mistral 7B v0.3; vllm, test_mistral_tool_parser.py", f"[TOOL_CALLS] [{_CALL}]"),
    _call(
        "Mistral Small 3.2; vllm, test_mistral_tool_parser.py",
        f"{SAID}[TOOL_CALLS]upsert_memory[ARGS]{_ARGUMENTS}",
        SAID,
    ),
    _call("Granite 3; vllm, test_granite_tool_parser.py", f"<|tool_call|>[{_CALL}]"),
    _call("Granite 20B; vllm, test_granite_20b_fc_tool_parser.py", f"<function_call> {_CALL}"),
    _call(
        "DeepSeek V3; vllm, test_deepseekv3_tool_parser.py",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>upsert_memory\n"
        f"```json\n{_ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    _call(
        "DeepSeek V3.1; vllm, test_deepseekv31_tool_parser.py",
        f"{SAID}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>upsert_memory<｜tool▁sep｜>{_ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        SAID,
    ),
    _call(
        "DeepSeek V3.2; vllm, test_deepseekv32_tool_parser.py",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="upsert_memory">\n<｜DSML｜parameter name="content" string="true">'
        f"{FACT}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    _call(
        "Kimi K2; vllm, test_kimi_k2_tool_parser.py",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.upsert_memory:0<|tool_call_argument_begin|>"
        f"{_ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    _call("Kimi K2, its tokens left out by the server", f"{SAID}\nfunctions.upsert_memory:0{_ARGUMENTS}", SAID),
    _call(
        "gpt-oss; TensorRT-LLM, issue 9256, and odysseus, issue 4522",
        "<|channel|>analysis<|message|>They cooked. Save it.<|end|><|start|>assistant<|channel|>commentary"
        f" to=functions.upsert_memory <|constrain|>json<|message|>{_ARGUMENTS}<|call|><|start|>assistant<|channel|>final<|message|>"
        f"{SAID}<|return|>",
        SAID,
    ),
    _call(
        "gpt-5.4; livekit/agents-js, issue 1632 (the recipient as text)",
        f"to=functions.upsert_memory  json\n{_ARGUMENTS}\n{SAID}",
        SAID,
    ),
    _call("Phi-4 mini; vllm, test_phi4mini_tool_parser.py", f"functools[{_CALL}]"),
    _call(
        "InternLM 2; vllm, test_internlm2_tool_parser.py",
        f'{SAID}<|action_start|><|plugin|>{{"name": "upsert_memory", "parameters": {_ARGUMENTS}}}<|action_end|>',
        SAID,
    ),
    _call(
        "GLM 4.5; vllm, test_glm4_moe_tool_parser.py",
        f"<tool_call>upsert_memory\n<arg_key>content</arg_key>\n<arg_value>{FACT}</arg_value>\n</tool_call>",
    ),
    _call(
        "MiniMax M2; vllm, test_minimax_m2_tool_parser.py",
        f'<minimax:tool_call>\n<invoke name="upsert_memory">\n<parameter name="content">{FACT}</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
    _call(
        "Claude's XML, which other models copy",
        f'{SAID}\n<function_calls>\n<invoke name="upsert_memory">\n<parameter name="content">{FACT}</parameter>\n</invoke>\n</function_calls>',
        SAID,
    ),
    _call("LFM2; vllm, test_lfm2_tool_parser.py", f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>{SAID}", SAID),
    _call(
        "Apertus; vllm, test_apertus_tool_parser.py",
        f'<|tools_prefix|><|tool_calls_prefix|>[{{"upsert_memory": {_ARGUMENTS}}}]<|tool_calls_suffix|>',
    ),
    _call("Nemotron; vllm, test_nemotron_json_tool_parser.py", f"<TOOLCALL>[{_CALL}]</TOOLCALL>"),
    _call(
        "FunctionGemma; vllm, test_functiongemma_tool_parser.py",
        f"<start_function_call>call:upsert_memory{{content:<escape>{FACT}<escape>}}<end_function_call>",
    ),
    _call(
        "Gemma 4; vllm, test_gemma4_tool_parser.py",
        f'<|tool_call>call:upsert_memory{{content:<|"|>{FACT}<|"|>}}<tool_call|>',
    ),
    _call(
        "Gemma 3, `tool_code`; Google's guide to function calling with Gemma", f"```tool_code\nprint({_PYTHON})\n```"
    ),
    _call("Gemini, `default_api`", f"```tool_code\nprint(default_api.{_PYTHON})\n```\n{SAID}", SAID),
    _call("LM Studio's default form", f"[TOOL_REQUEST]\n{_CALL}\n[END_TOOL_REQUEST]\n{SAID}", SAID),
    _call("Longcat; vllm, test_longcat_tool_parser.py", f"<longcat_tool_call>\n{_CALL}\n</longcat_tool_call>"),
    _call(
        "Seed OSS; vllm, test_seed_oss_tool_parser.py",
        f"<seed:tool_call>\n<function=upsert_memory>\n<parameter=content>{FACT}</parameter>\n</function>\n</seed:tool_call>",
    ),
    _call(
        "ReAct; vllm, issue 3584, and QwenLM/Qwen3, issue 197",
        f"Thought: I should use a tool to keep this.\nAction: upsert_memory\nAction Input: {_ARGUMENTS}\nObservation: Saved.\n"
        f"Thought: I now know the final answer\nFinal Answer: {SAID}",
        SAID,
    ),
    _call(
        "OpenAI's API form as text", f'{{"tool_calls": [{{"id": "call_1", "type": "function", "function": {_CALL}}}]}}'
    ),
    _call("OpenAI's `type: function` as text", f'```\n{{"type": "function", "function": {_CALL}}}\n```\n{SAID}', SAID),
    _call("xLAM; vllm, test_xlam_tool_parser.py", f"[{_CALL}]"),
    _call(
        "`tool` and `tool_input`, LangChain's JSON chat form",
        f'```json\n{{"tool": "upsert_memory", "tool_input": {_ARGUMENTS}}}\n```',
    ),
    _call("a Python dict instead of JSON", f"{{'name': 'upsert_memory', 'arguments': {{'content': '{FACT}'}}}}"),
    _call("a call in inline code", f"{SAID} `{_CALL}` {ASKED}", f"{SAID} {ASKED}"),
]

_UNKNOWN_CALL = '{"name": "remember", "arguments": {"fact": "They like lasagne."}}'
WHOLE_REPLIES = [
    Recorded("Qwen2.5-Coder-1.5B: nothing but an empty object", "{}", ""),
    Recorded("an empty list", " [ ]\n", ""),
    Recorded("an empty object in a code block", "```json\n{}\n```", ""),
    Recorded("a thought, then an empty object", "<think>They greet me.</think>\n\n{}", ""),
    Recorded("Qwen2.5-Coder-1.5B: a tool that nobody offered", _UNKNOWN_CALL, ""),
    Recorded("Qwen2.5-Coder-1.5B: the same in a code block", f"```json\n{_UNKNOWN_CALL}\n```\n", ""),
    Recorded("a list of such calls", f"[{_UNKNOWN_CALL}, {_UNKNOWN_CALL}]", ""),
    Recorded(
        "the API's own form", '{"id": "1", "type": "function", "function": {"name": "note", "arguments": "{}"}}', ""
    ),
    Recorded("llama.cpp with a completion template: the label of the role", f"assistant: {SAID}", SAID),
    Recorded("the same, on a line of its own", f"\nAssistant:\n\n{SAID} {ASKED}", f"{SAID} {ASKED}"),
]
THOUGHTS = [
    Recorded(
        "DeepSeek R1; vllm, test_deepseekr1_reasoning_parser.py", f"<think>\nThey cooked.\n</think>\n\n{SAID}", SAID
    ),
    Recorded("Qwen3 with thoughts switched off", f"<think>\n\n</think>\n\n{SAID}", SAID),
    Recorded(
        "R1-1776; perplexityai/api-discussion, issue 177",
        f"Okay, the user made lasagne. I should cheer.\n</think>\n\n{SAID}",
        SAID,
    ),
    Recorded(
        "MiniMax M2.5; iOfficeAI/AionUi, pull request 962",
        f"The user made lasagne and is proud.\n</think>\n{SAID}",
        SAID,
    ),
    Recorded("qwen-code, pull request 8818 (`<thinking>`)", f"<thinking>They are proud.</thinking>{SAID}", SAID),
    Recorded("Magistral; vllm, test_mistral_reasoning_parser.py", f"[THINK]They are proud.[/THINK]{SAID}", SAID),
    Recorded("Kimi-VL Thinking; its model card", f"◁think▷They are proud.◁/think▷{SAID}", SAID),
    Recorded(
        "Gemma 4; vllm, test_gemma4_reasoning_parser.py", f"<|channel>thought\nThey are proud.<channel|>{SAID}", SAID
    ),
    Recorded(
        "Seed OSS; vllm, test_seedoss_reasoning_parser.py", f"<seed:think>They are proud.</seed:think>{SAID}", SAID
    ),
    Recorded(
        "Cohere Command A; vllm, test_cohere_command_reasoning_parser.py",
        f"<|START_THINKING|>Proud.<|END_THINKING|><|START_RESPONSE|>{SAID}<|END_RESPONSE|>",
        SAID,
    ),
    Recorded(
        "gpt-oss; scouzi1966/maclocal-api, issue 121",
        f"<|channel|>analysis<|message|>They are proud.<|end|><|start|>assistant<|channel|>final<|message|>{SAID}",
        SAID,
    ),
    Recorded(
        "gpt-oss, tokens left out; Augustas11/macprovider, issue 743",
        f'analysisThe user says "I made lasagne". Cheer.assistantfinal{SAID}',
        SAID,
    ),
    Recorded(
        "`<reasoning>` and `<thought>`, small fine-tunes",
        f"<reasoning>Proud.</reasoning>\n<thought>Yes.</thought>\n{SAID}",
        SAID,
    ),
    Recorded("openclaw, pull request 37703 (never closed)", "<think>They made lasagne. I could say", ""),
]

TOKENS = [
    Recorded("ChatML; SmolLM2 and Qwen", f"{SAID}<|im_end|>\n<|im_start|>user\nThanks!<|im_end|>", SAID),
    Recorded("Llama 3", f"{SAID}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nAnd more", SAID),
    Recorded("Llama 2 and Mistral; oobabooga/textgen, issue 2274", f"{SAID}</s>", SAID),
    Recorded("Gemma", f"<start_of_turn>model\n{SAID}<end_of_turn>", SAID),
    Recorded("Phi 3", f"<|assistant|>\n{SAID}<|end|>", SAID),
    Recorded(
        "SmolLM2-135M, measured: the server's note of the prompt",
        f"{SAID}\n\n[Server note: It is Wednesday] {ASKED}",
        f"{SAID}\n\n{ASKED}",
    ),
    Recorded(
        "a small model, measured: the note with memories",
        f"[Server note, up to the line “— end of note —”: It is Wednesday.]\nYou remember: tea.\n— end of note —\n{SAID}",
        SAID,
    ),
    Recorded("ChatML at the beginning", f"<|im_start|>assistant\n{SAID}", SAID),
]

UNFINISHED = [
    Recorded(
        "cut off in a code block",
        f'{SAID}\n```json\n{{"name": "upsert_memory", "arguments": {{"content": "The us',
        SAID,
    ),
    Recorded("cut off in bare JSON", f'{SAID}\n{{"name": "upsert_memory", "argu', SAID),
    Recorded("cut off in the tool's name", f'{SAID}\n{{"name": "upsert_m', SAID),
    Recorded("cut off in a tag", f'{SAID}\n<tool_call>\n{{"name": "upsert_me', SAID),
    Recorded("cut off in a Python-like call", f'{SAID}\nupsert_memory(content="The us', SAID),
    Recorded("cut off in a thought", f"{SAID}\n<think>Now I", SAID),
    Recorded("cut off in a channel", "<|channel|>analysis<|message|>They are", ""),
]

RECORDED = [*CALLS, *WHOLE_REPLIES, *THOUGHTS, *TOKENS, *UNFINISHED]
