// The platform's own extension of Pi 1.6.0. It asks before the tools that the agent wants to be asked for, and adds
// what the platform tells of a written file: whether it was there before.
//
// A question is an `input` dialog: its title says that it is ours, its placeholder what is to be allowed, and the
// text that answers it is JSON: {"choice", "comment"?, "input"?}. A dialog that is dismissed declines.
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { resolve } from "node:path";

const TITLE = "astrabox:approval";
const ASK: string[] = [];

const patterns = ASK.map((pattern) => {
  const parts = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`);
});

// What was allowed for the session: edits of one file, or one exact call.
function scope(tool: string, input: Record<string, unknown>): string {
  const edits = (tool === "write" || tool === "edit") && typeof input.path === "string";
  return JSON.stringify([tool, edits ? input.path : input]);
}

function existed(cwd: string, path: unknown): boolean | undefined {
  if (typeof path !== "string") return undefined;
  const home = path === "~" || path.startsWith("~/");
  return existsSync(home ? homedir() + path.slice(1) : resolve(cwd, path));
}

export default function (pi: any) {
  const allowed = new Set<string>();
  const before = new Map<string, boolean | undefined>();

  async function ask(event: any, ctx: any) {
    const key = scope(event.toolName, event.input);
    if (allowed.has(key)) return undefined;
    const told = { call: event.toolCallId, tool: event.toolName, input: event.input };
    const answer = await ctx.ui.input(TITLE, JSON.stringify(told), { signal: ctx.signal });
    const { choice, comment, input } = JSON.parse(answer ?? "{}");
    if (choice === "allow" || choice === "allow_session") {
      if (choice === "allow_session") allowed.add(key);
      if (input) {
        for (const name of Object.keys(event.input)) delete event.input[name];
        Object.assign(event.input, input);
      }
      return undefined;
    }
    if (choice === "deny_stop") ctx.abort();
    return { block: true, reason: comment || "The user declined this tool call." };
  }

  pi.on("tool_call", async (event: any, ctx: any) => {
    if (patterns.some((pattern) => pattern.test(event.toolName))) {
      const verdict = await ask(event, ctx);
      if (verdict) return verdict;
    }
    if (event.toolName === "write") before.set(event.toolCallId, existed(ctx.cwd, event.input.path));
    return undefined;
  });

  pi.on("tool_result", (event: any) => {
    if (!before.has(event.toolCallId)) return undefined;
    const was = before.get(event.toolCallId);
    before.delete(event.toolCallId);
    return { details: { ...event.details, existed: was } };
  });
}
