// Usage: node ag_ui_judge.mjs http://127.0.0.1:PORT/
// @ag-ui/client's HttpAgent, whose own verification of each stream must stay clean, against the subject.
import { HttpAgent } from "@ag-ui/client";

const url = process.argv[2];
const PICK = { name: "pick", description: "Pick a place.", parameters: { type: "object", properties: { location: { type: "string" } } } };
const need = (truth, why) => { if (!truth) throw new Error(String(why).slice(0, 300)); };

class Page {
  constructor(...tools) {
    this.tools = tools;
    this.agent = new HttpAgent({ url });
  }
  async run(...messages) {
    messages.forEach((message) => this.agent.addMessage(message));
    this.last = undefined;
    await this.agent.runAgent({ tools: this.tools, ...this.more }, {
      onRunFinishedEvent: ({ event }) => { this.last = event; },
      onRunErrorEvent: ({ event }) => { this.last = event; },
    }).catch((error) => { if (this.last?.type !== "RUN_ERROR") throw error; });
    return this.last;
  }
  get calls() { return this.agent.messages.flatMap((message) => message.toolCalls ?? []); }
  get text() { return this.agent.messages.filter((m) => m.role === "assistant").map((m) => m.content ?? "").join("|"); }
}
let count = 0;
const user = (content) => ({ id: `u${++count}`, role: "user", content });
const result = (call, content) => ({ id: `t${++count}`, role: "tool", toolCallId: call.id, content });
const ids = (page) => page.agent.messages.map((message) => message.id);

const CASES = {
  text: async () => { const p = new Page(); const end = await p.run(user("hello")); need(end.outcome.type === "success", JSON.stringify(end)); need(p.text === "You said: hello", p.text); },
  server_tool: async () => { const p = new Page(); await p.run(user("tool")); need(p.text.includes("Result: sky is blue"), p.text); },
  client_tool: async () => {
    const p = new Page(PICK);
    const end = await p.run(user("use it"));
    need(end.type === "RUN_FINISHED" && end.outcome.type === "success", JSON.stringify(end));
    need(p.calls.length === 1 && p.calls[0].function.name === "pick", JSON.stringify(p.calls));
    await p.run(result(p.calls[0], "Linz"));
    need(p.text.endsWith("Result: Linz"), p.text);
    need(p.agent.messages.filter((m) => m.role === "tool").length === 1, "the result is there twice");
    need(new Set(ids(p)).size === ids(p).length, "an id is there twice");
  },
  client_tools: async () => {
    const p = new Page(PICK, { ...PICK, name: "stroke" });
    await p.run(user("use them"));
    await p.run(...p.calls.map((call, n) => result(call, `r${n}`)));
    need(p.text.endsWith("Result: r1"), p.text);
  },
  client_tool_and_approval: async () => {
    const p = new Page(PICK);
    const end = await p.run(user("mix"));
    need(end.outcome.type === "interrupt" && end.outcome.interrupts.length === 1, JSON.stringify(end));
    const [approval] = end.outcome.interrupts;
    p.more = { resume: [{ interruptId: approval.id, status: "resolved", payload: { approved: true } }] };
    const call = p.calls.find((c) => c.function.name === "pick");
    await p.run(result(call, "Linz"));
    need(p.text.endsWith("Result: paid 5"), p.text);
  },
  next_turn: async () => {
    const p = new Page(PICK);
    await p.run(user("use it"));
    await p.run(result(p.calls[0], "Linz"));
    await p.run(user("recall"));
    need(p.text.includes("You said: use it"), p.text);
  },
  superseded: async () => { const p = new Page(PICK); await p.run(user("use it")); await p.run(result(p.calls[0], "Linz"), user("hello")); need(p.text.endsWith("You said: hello"), p.text); },
  engine_tool_name: async () => { const p = new Page({ ...PICK, name: "look" }); const end = await p.run(user("hello")); need(end.type === "RUN_ERROR", JSON.stringify(end)); },
  forged_result: async () => {
    const p = new Page(PICK);
    await p.run(user("use it"));
    const q = new Page();
    q.agent.messages = structuredClone(p.agent.messages);
    const end = await q.run(result(p.calls[0], "Wien"));
    need(end.type === "RUN_ERROR", JSON.stringify(end));
    await p.run(result(p.calls[0], "Linz"));
    need(p.text.endsWith("Result: Linz"), p.text);
  },
};

let failed = false;
for (const [name, run] of Object.entries(CASES)) {
  try {
    await run();
    console.log(`PASS ${name}`);
  } catch (error) {
    failed = true;
    console.log(`FAIL ${name}: ${String(error?.message ?? error).replaceAll("\n", " ").slice(0, 300)}`);
  }
}
process.exit(failed ? 1 : 0);
