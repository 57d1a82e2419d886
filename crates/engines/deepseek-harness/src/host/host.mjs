// A plugin of DeepSeek Harness 0.2.1rc2 that tells over its ACP profile what the profile leaves out.
//
// The profile speaks of committed messages of the root session only. This plugin stands between it and standard
// input and output: it adds pieces of messages, child sessions, background work, turns that nobody asked for,
// questions, permission modes and token counts. What it adds has ACP's own form where ACP has one, and a method that
// begins with `_astrabox/` where it has none. Every event of the program is told as it happens, so the order on the
// wire is the order of the session's log; the profile's own telling of the same, which comes later, is left out.

import { AsyncLocalStorage } from 'node:async_hooks';
import { StringDecoder } from 'node:string_decoder';

export const name = 'astrabox-host';
export const inject = ['agents', 'approval', 'permissionPresets', 'sandbox', 'sessions', 'systemPrompt'];

const OWN = '_astrabox/';
// Tools that change nothing outside the conversation, or whose effects are asked for by themselves.
const UNASKED = new Set([
  'ask_user_question', 'create_goal', 'exit_plan_mode', 'get_goal', 'glob', 'grep', 'interrupt_agent', 'job_kill',
  'job_list', 'job_output', 'list_agents', 'read', 'read_image', 'send_message', 'skill', 'subagent',
  'subagent_fork', 'todo_write', 'update_goal', 'working_directory',
]);
const RETOLD = new Set(['agent_message_chunk', 'agent_thought_chunk', 'tool_call', 'tool_call_update']);

/**
 * `asking`: the mode in which each tool call is asked for. `modes`: names of all modes. `instructions`: the agent's.
 * `landlock`: the launcher that the package leaves out.
 */
export function apply(ctx, config) {
  const wire = new Wire();
  const told = new Told(ctx, wire);
  // The program's second way to confine commands, after bubblewrap. Its runtime package lacks the launcher.
  ctx.sandbox.internals.landlockLauncher = config.landlock;
  ctx.systemPrompt.variable('agent_instructions', () => config.instructions);
  answerHost(ctx, wire, told, config);
  watchPrompts(wire, told);
  watchSessions(ctx, wire, told);
  gateTools(ctx, wire, told, config);
  carryQuestions(ctx, wire);
  ctx.provide('astraboxWire', wire.stream());
}

const isChild = (session) => session.header.parentSession !== undefined;
const isSaid = ({ type, text }) => (type === 'text' || type === 'reasoning') && text !== '';
const textOf = (error) => String(error?.message ?? error);

/** Standard input and output, line by line, with the profile behind it. */
class Wire {
  requests = new Map();
  answers = new Map();
  onRequest = () => undefined;
  onMessage = (message) => message;
  last = 0;

  send(message) {
    process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  }

  tell(what, params) {
    this.send({ method: OWN + what, params });
  }

  update(sessionId, update) {
    this.send({ method: 'session/update', params: { sessionId, update } });
  }

  /** Asks the host; `signal` takes the request back. */
  ask(method, params, signal) {
    const id = `astrabox-${++this.last}`;
    return new Promise((resolve, reject) => {
      this.answers.set(id, { resolve, reject });
      signal?.addEventListener('abort', () => {
        if (!this.answers.delete(id)) return;
        this.send({ method: '$/cancel_request', params: { requestId: id } });
        reject(signal.reason);
      }, { once: true });
      this.send({ id, method, params });
    });
  }

  /** A line of the host: an answer to the plugin, a request that the plugin serves, or the profile's. */
  take(line, profile) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return this.send({ id: null, error: { code: -32700, message: 'Parse error' } });
    }
    const waiting = message.method === undefined ? this.answers.get(message.id) : undefined;
    if (waiting !== undefined) {
      this.answers.delete(message.id);
      if (message.error === undefined) return waiting.resolve(message.result);
      return waiting.reject(new Error(message.error.message));
    }
    const served = message.method === undefined ? undefined : this.onRequest(message);
    if (served === undefined) {
      if (message.id !== undefined && message.method !== undefined) this.requests.set(message.id, message);
      return profile.enqueue(message);
    }
    try {
      this.send({ id: message.id, result: served() });
    } catch (error) {
      this.send({ id: message.id, error: { code: -32602, message: textOf(error) } });
    }
  }

  /** What the profile reads and writes in place of standard input and output. */
  stream() {
    const readable = new ReadableStream({
      start: (profile) => {
        const decoder = new StringDecoder('utf8');
        let rest = '';
        process.stdin.on('data', (bytes) => {
          const lines = (rest + decoder.write(bytes)).split('\n');
          rest = lines.pop();
          for (const line of lines) if (line.trim() !== '') this.take(line, profile);
        });
        process.stdin.on('end', () => profile.close());
      },
    });
    const writable = new WritableStream({
      write: (message) => {
        const asked = message.method === undefined ? this.requests.get(message.id) : undefined;
        if (asked !== undefined) this.requests.delete(message.id);
        const kept = this.onMessage(message, asked);
        if (kept !== undefined) process.stdout.write(`${JSON.stringify(kept)}\n`);
        this.onWritten(asked);
      },
    });
    return { readable, writable };
  }

  onWritten() {}
}

/** What was told of turns and of work beside them. */
class Told {
  prompts = new Set();
  ownTurn = undefined;
  usage = undefined;
  whole = 0;
  jobs = new Map();
  children = new Map();
  background = false;

  constructor(ctx, wire) {
    this.ctx = ctx;
    this.wire = wire;
  }

  /** Work that goes on beside a turn is told before the turn's end. A prompt is answered after its children. */
  tellWork(withChildren) {
    const jobs = [...this.jobs.values()].some((job) => job.told);
    if (this.background || !(jobs || (withChildren && this.children.size > 0))) return;
    this.background = true;
    this.wire.tell('background', { running: true });
  }

  /** The end of such work is told when nothing is to follow: what the program says to it is a turn of its own. */
  tellRest() {
    const jobs = [...this.jobs.values()].some((job) => job.told);
    const root = this.ctx.agents.list().find((agent) => !isChild(agent.session));
    const busy = this.prompts.size > 0 || this.ownTurn !== undefined || root?.status === 'running';
    if (!this.background || jobs || this.children.size > 0 || busy) return;
    this.background = false;
    this.wire.tell('background', { running: false });
  }

  count(usage) {
    if (usage === undefined) return;
    const none = { inputTokens: 0, outputTokens: 0, cachedReadTokens: 0, cachedWriteTokens: 0, totalTokens: 0 };
    const sum = (this.usage ??= none);
    sum.inputTokens += usage.inputTokens ?? 0;
    sum.outputTokens += usage.outputTokens ?? 0;
    sum.cachedReadTokens += usage.cacheReadTokens ?? 0;
    sum.cachedWriteTokens += usage.cacheWriteTokens ?? 0;
    sum.totalTokens += usage.totalTokens ?? 0;
  }

  takeUsage() {
    const usage = this.usage;
    this.usage = undefined;
    return usage;
  }
}

/** Requests of the host that the profile does not have. */
function answerHost(ctx, wire, told, config) {
  const agentOf = (sessionId) => {
    const agent = ctx.agents.list().find(({ session }) => session.id === sessionId);
    if (agent === undefined) throw new Error(`no session ${sessionId} is open`);
    return agent;
  };
  const served = {
    'session/set_mode': ({ sessionId, modeId }) => {
      const agent = agentOf(sessionId);
      ctx.permissionPresets.apply(agent.session, modeId, (policy) => ctx.approval.setPolicy(agent, policy));
      const now = ctx.permissionPresets.current(agent.session);
      if (now !== modeId) throw new Error(`the session is in mode ${now}, not ${modeId}`);
      return {};
    },
    [`${OWN}stop`]: ({ id }) => {
      const job = told.jobs.get(id);
      if (job !== undefined) {
        ctx.get('jobs').kill(id, job.owner, 'stopped by the user');
        return {};
      }
      const parentSessionId = agentOf(id).session.header.parentSession;
      ctx.get('subagents').interrupt(id, { kind: 'user', parentSessionId });
      return {};
    },
  };
  wire.onRequest = ({ method, params }) => {
    const serve = served[method];
    return serve === undefined ? undefined : () => serve(params);
  };
  wire.modes = (sessionId) => ({
    currentModeId: ctx.permissionPresets.current(agentOf(sessionId).session),
    availableModes: config.modes.map((id) => ({ id, name: id })),
  });
}

/** Adds modes to the opening and token counts to the end of a prompt, and leaves out what is told otherwise. */
function watchPrompts(wire, told) {
  const take = wire.take.bind(wire);
  wire.take = (line, profile) => take(line, {
    enqueue: (message) => {
      if (message.method === 'session/prompt') {
        told.prompts.add(message.id);
        if (told.ownTurn === undefined) told.takeUsage();
      }
      profile.enqueue(message);
    },
    close: () => profile.close(),
  });
  wire.onMessage = (message, asked) => {
    if (message.method === 'session/update' && RETOLD.has(message.params.update.sessionUpdate)) return undefined;
    if (asked?.method === 'session/prompt') {
      told.tellWork(true);
      const usage = told.takeUsage();
      if (message.result !== undefined && usage !== undefined) {
        return { ...message, result: { ...message.result, usage } };
      }
    }
    if ((asked?.method === 'session/new' || asked?.method === 'session/resume') && message.result !== undefined) {
      const modes = wire.modes(message.result.sessionId ?? asked.params.sessionId);
      return { ...message, result: { ...message.result, modes } };
    }
    return message;
  };
  wire.onWritten = (asked) => {
    if (asked?.method !== 'session/prompt') return;
    told.prompts.delete(asked.id);
    told.tellRest();
  };
}

/** Tells what sessions log, and the pieces of their messages. */
function watchSessions(ctx, wire, told) {
  const streams = new Map();
  ctx.on('agent/assistant-stream', ({ agent, frame }) => {
    const id = agent.session.id;
    if (frame.type === 'start') {
      // What an attempt said that failed is said again by the next one.
      if (streams.get(id)?.failed === true) wire.tell('dropped', { sessionId: id });
      return void streams.set(id, { attempt: frame.attemptId, said: false });
    }
    const stream = streams.get(id);
    if (stream === undefined) return;
    if (frame.type === 'end') {
      if (frame.outcome.eventType === 'assistant/message') streams.delete(id);
      else stream.failed = true;
      return;
    }
    const { chunk } = frame;
    const messageId = `${stream.attempt}/${chunk.index}`;
    if (chunk.type === 'block-end' && isSaid(chunk.block)) {
      stream.said = true;
      wire.tell('message', { sessionId: id, messageId, kind: chunk.block.type, text: chunk.block.text });
    }
    const sessionUpdate = { 'text-delta': 'agent_message_chunk', 'reasoning-delta': 'agent_thought_chunk' }[chunk.type];
    if (sessionUpdate === undefined || chunk.text === '') return;
    stream.said = true;
    wire.update(id, { sessionUpdate, messageId, content: { type: 'text', text: chunk.text } });
  });
  const logged = sessionEvents(wire, told, streams);
  ctx.on('session/event', (session, event) => logged[event.type]?.(session, event.data, event));
  ctx.on('agent/status', ({ agent, status }) => {
    if (isChild(agent.session) || status !== 'idle') return;
    if (told.ownTurn !== undefined && told.prompts.size === 0) {
      told.tellWork(true);
      const { reason } = told.ownTurn;
      wire.tell('turn', { sessionId: agent.session.id, state: 'ended', reason, usage: told.takeUsage() });
    }
    told.ownTurn = undefined;
    told.tellRest();
  });
}

function sessionEvents(wire, told, streams) {
  const inputs = new Map();
  return {
    'turn/start': (session) => {
      if (isChild(session) || told.prompts.size > 0) return;
      told.ownTurn = {};
      wire.tell('turn', { sessionId: session.id, state: 'started' });
    },
    'turn/end': (session, { reason }) => {
      streams.delete(session.id);
      if (!isChild(session) && told.ownTurn !== undefined) told.ownTurn.reason = reason;
    },
    'assistant/message': (session, { message, usage }) => {
      if (!isChild(session)) told.count(usage);
      // A model that does not stream says it at once.
      if (streams.get(session.id)?.said === true) return;
      for (const { type, text } of message.content.filter(isSaid)) {
        wire.tell('message', { sessionId: session.id, messageId: `${message.id}/${told.whole++}`, kind: type, text });
      }
    },
    'tool/call': (session, { callId, name: title, arguments: given }) => {
      let rawInput = given;
      try {
        rawInput = JSON.parse(given);
      } catch {
        // The model wrote no JSON; it is told as it stands.
      }
      inputs.set(callId, rawInput);
      const call = { toolCallId: callId, title, kind: 'other', status: 'in_progress', rawInput };
      wire.update(session.id, { sessionUpdate: 'tool_call', ...call });
    },
    'tool/result': (session, { message, meta }) => {
      const { toolCallId, isError } = message;
      const texts = message.content.filter(({ type }) => type === 'text');
      const content = texts.map((text) => ({ type: 'content', content: text }));
      for (const diff of meta?.diffs ?? []) content.push({ type: 'diff', ...diff });
      const newText = inputs.get(toolCallId)?.content;
      inputs.delete(toolCallId);
      if (meta?.operation === 'create') content.push({ type: 'diff', path: meta.path, oldText: null, newText });
      // A job that its call does not wait for goes on by itself.
      for (const job of told.jobs.values()) if (job.callId === toolCallId && !job.told) tellJob(job, 'running');
      const status = isError === true ? 'failed' : 'completed';
      wire.update(session.id, { sessionUpdate: 'tool_call_update', toolCallId, status, content });
      told.tellWork(false);
    },
    'job/registered': (session, { jobId, owner, label, toolCall }) => {
      told.jobs.set(jobId, { id: jobId, owner, session, label, callId: toolCall?.callId, told: false });
    },
    'job/settled': (session, data) => {
      const job = told.jobs.get(data.jobId);
      told.jobs.delete(data.jobId);
      if (job?.told) tellJob(job, { completed: 'completed', killed: 'stopped' }[data.status] ?? 'failed');
    },
    'subagent/catalog': (session, { childId, label }) => {
      const child = told.children.get(childId);
      if (child === undefined || child.title !== undefined) return;
      child.title = label;
      wire.tell('child', child);
    },
    'compaction/end': (session, { error }) => {
      const status = error === undefined ? 'completed' : 'failed';
      wire.update(session.id, { sessionUpdate: 'compaction_update', status, error });
    },
    'llm/retry': (session, { retry, maxRetries, failure }) => {
      wire.tell('retry', { sessionId: session.id, retry, maxRetries, failure });
    },
    'request/header': (session, { header }) => {
      if (!isChild(session)) wire.tell('tools', { names: header.tools.map((tool) => tool.name) });
    },
  };
  function tellJob(job, state) {
    job.told = true;
    const parent = isChild(job.session) ? job.session.id : undefined;
    wire.tell('child', { id: job.id, parent, state, title: job.label, callId: job.callId });
  }
}

/** Asks for tool calls, and follows which call begins which child. */
function gateTools(ctx, wire, told, config) {
  const calls = new AsyncLocalStorage();
  ctx.on('tools/execute', (exec, next) => calls.run(exec, next));
  ctx.on('subagent/start', ({ id }) => {
    const call = calls.getStore();
    const parent = call?.agent?.session.id;
    const child = { id, parent, state: 'running', title: call?.arguments?.description, callId: call?.callId };
    told.children.set(id, child);
    wire.tell('child', child);
  });
  ctx.on('subagent/end', ({ id, stopReason }) => {
    const child = told.children.get(id);
    told.children.delete(id);
    const state = { completed: 'completed', aborted: 'stopped' }[stopReason] ?? 'failed';
    wire.tell('child', { ...child, id, state });
  });
  const asks = (session) => {
    for (let at = session; at !== undefined; at = ctx.sessions.get(at.header.parentSession)) {
      if (!isChild(at)) return ctx.permissionPresets.current(at) === config.asking;
    }
    // A child whose root is not there is asked for: nobody else would be.
    return true;
  };
  ctx.on('tools/pre-execute', async (exec, next) => {
    const decision = await next();
    const session = exec.agent?.session;
    if (decision.kind !== 'allow' || session === undefined || UNASKED.has(exec.name) || !asks(session)) return decision;
    const reason = `each call is asked for in the mode ${config.asking}`;
    if (!isChild(session)) return { kind: 'ask', reason };
    // The program lets no child ask, so its calls are asked for here.
    const options = [
      { optionId: 'allow-once', name: 'Allow once', kind: 'allow_once' },
      { optionId: 'reject-once', name: 'Reject', kind: 'reject_once' },
    ];
    const toolCall = { toolCallId: exec.callId };
    const request = { sessionId: session.id, toolCall, options };
    const { outcome } = await wire.ask('session/request_permission', request, exec.signal);
    if (outcome.outcome === 'selected' && outcome.optionId === 'allow-once') return decision;
    return { kind: 'deny', reason: `the user rejected tool "${exec.name}"` };
  });
}

/** Carries the questions of `ask_user_question` to the host. */
function carryQuestions(ctx, wire) {
  ctx.on('user-questions/request', async (request, next) => {
    if (request.agent === undefined) return next();
    const { questions, signal } = request;
    const sessionId = request.agent.session.id;
    const answer = await wire.ask(`${OWN}question`, { sessionId, questions }, signal);
    if (answer.declined === true) throw new Error(answer.comment ?? 'the user declined to answer');
    return { answers: answer.answers };
  });
}
