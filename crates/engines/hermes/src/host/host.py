"""Hosts Hermes Agent 0.19.0's own ACP server, so that what it does can be asked, told and kept.

The server of `hermes-acp` runs here unchanged but for what a host may give it: hooks of its plugin
system, the client it speaks to, and the time it waits for an answer. Beyond ACP it then

* asks before every tool call while the session's mode is `default`, and waits as long as it takes;
* tells each tool call once, with its own name, input and result (the server's own updates pair calls
  with results by name, and tell nothing of calls that are refused or cut off);
* tells sub-agents, each as a session of its own, and how a turn really ended: the server says
  `end_turn` for a failed one too;
* keeps a whole copy of the conversation below `saved` before a turn is told to be over, and refuses
  to go on with a conversation that is damaged or not there.

Everything beyond ACP is under `_meta.astrabox` or in methods that begin with `_astrabox/`.
Arguments: the directory of Hermes' packages, and a settings file.
"""

import json
import os
import sys

sys.path.insert(1, sys.argv[1])

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import math
import shutil
import sqlite3
import threading
from dataclasses import dataclass, field
from pathlib import Path

HOME = Path(os.environ["HERMES_HOME"])
SAVED = HOME / "saved"
DATABASE = HOME / "state.db"
ALLOWLIST = SAVED / "allowlist.json"
# What a conversation is made of, beside its database, and the name of its copy.
MEMORIES = {name: HOME / "memories" / name for name in ("MEMORY.md", "USER.md")}
# The mode in which every tool call is asked for, and the one in which Hermes asks for dangerous commands.
ASKING, WARY = "default", "accept_edits"
# JSON-RPC errors: the stored conversation cannot be used; the turn failed.
LOST = -32050
FAILED = -32051
# Unchanged lines that are told around a change of a file, and the largest file whose change is told, bytes.
CONTEXT, LARGEST = 3, 1 << 20
# A tool's result is told in this much time, seconds, or the program's output is stuck for good.
TELLING = 600
# How long a turn that runs when the input ends may take to stop, seconds.
STOPPING = 1.5

log = logging.getLogger("astrabox")
saving = threading.Lock()


def prepare(settings):
    """Puts files in place before Hermes reads any."""
    for name, place in {"state.db": DATABASE, **MEMORIES}.items():
        if not place.exists() and (SAVED / name).exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            for log_of_another in ("-wal", "-shm"):
                place.with_name(place.name + log_of_another).unlink(missing_ok=True)
            shutil.copyfile(SAVED / name, place)
    config = settings["config"]
    with contextlib.suppress(OSError, ValueError):
        # What a person allowed for always.
        config.setdefault("command_allowlist", json.loads(ALLOWLIST.read_text()))
    model = config["model"]
    model.setdefault("context_length", context_length(model["default"]))
    ask_nothing(model["base_url"])
    settings["follows"] = "mode" not in config.setdefault("approvals", {})
    configure(settings, ASKING)


def configure(settings, mode):
    """Writes the configuration for a permission mode, which decides on dangerous commands unless the agent's options
    do: in the asking mode a person has seen them before, and in sub-agents Hermes would deny them."""
    config = settings["config"]
    if settings["follows"]:
        config["approvals"]["mode"] = "manual" if mode == WARY else "off"
    # JSON is YAML.
    replace(HOME / "config.yaml", json.dumps(config, indent=1).encode())


def context_length(model):
    """The length of this model's context by Hermes' own table of names."""
    from agent.model_metadata import DEFAULT_CONTEXT_LENGTHS, DEFAULT_FALLBACK_CONTEXT

    known = [name for name in DEFAULT_CONTEXT_LENGTHS if name in model.lower()]
    return DEFAULT_CONTEXT_LENGTHS[max(known, key=len)] if known else DEFAULT_FALLBACK_CONTEXT


def ask_nothing(endpoint):
    """Answers in advance what Hermes would ask an endpoint, or a public catalogue: what kind of server it
    is, and what its models cost."""
    from agent import model_metadata

    url = model_metadata._localhost_to_ipv4(model_metadata._normalize_base_url(endpoint))
    model_metadata._endpoint_probe_path_cache[url.removesuffix("/v1")] = (None, math.inf)
    url = model_metadata._normalize_base_url(endpoint)
    model_metadata._endpoint_model_metadata_cache[url] = {}
    model_metadata._endpoint_model_metadata_cache_time[url] = math.inf


def save():
    """Copies the conversation, whole and at one moment, below `saved`."""
    with saving:
        save_database()
        save_beside()


def save_database():
    SAVED.mkdir(mode=0o700, exist_ok=True)
    partial = SAVED / "state.db.partial"
    partial.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(DATABASE, timeout=30)) as connection:
        connection.execute("VACUUM INTO ?", (str(partial),))
    os.replace(partial, SAVED / "state.db")


def save_beside():
    for name, place in MEMORIES.items():
        if place.exists():
            replace(SAVED / name, place.read_bytes())
    allowed = allowlist()
    if allowed:
        replace(ALLOWLIST, json.dumps(allowed).encode())


def allowlist():
    from hermes_cli.config import load_config

    return load_config().get("command_allowlist") or []


def replace(place, content):
    partial = place.with_name(place.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, place)


def adopt(session_id, model):
    """Checks the stored conversation, and gives it the model and endpoint of this start's configuration:
    Hermes would go on with those that the conversation began with."""
    from acp import RequestError

    if not DATABASE.exists():
        raise RequestError(LOST, "there is no stored conversation")
    try:
        with contextlib.closing(sqlite3.connect(DATABASE, timeout=30)) as connection, connection:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            row = connection.execute(
                "SELECT model_config FROM sessions WHERE id = ? AND source = 'acp'", (session_id,)
            ).fetchone()
            if row is None:
                raise RequestError(LOST, "the stored conversation is another one")
            meta = json.loads(row[0] or "{}")
            meta.update({key: model[key] for key in ("provider", "base_url", "api_mode")})
            connection.execute(
                "UPDATE sessions SET model = ?, model_config = ? WHERE id = ?",
                (model["default"], json.dumps(meta), session_id),
            )
    except (sqlite3.DatabaseError, ValueError) as error:
        raise RequestError(LOST, f"the stored conversation is damaged: {error}") from error


def used():
    """What the conversation and its sub-agents have used, in ACP's words; a home has one conversation."""
    columns = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
    with contextlib.closing(sqlite3.connect(DATABASE, timeout=30)) as connection:
        fresh, output, read, written, thought = connection.execute(
            f"SELECT {sums} FROM sessions"
        ).fetchone()
    return {
        "input_tokens": fresh + read + written,
        "cached_read_tokens": read,
        "output_tokens": output,
        "thought_tokens": thought,
        "total_tokens": fresh + read + written + output,
    }


@dataclass
class Call:
    """A tool call that has begun."""

    id: str
    native_id: str
    name: str
    args: dict
    # The sub-agent that calls.
    run: str | None
    # The texts of the files that it edits, by path; None for one that is not there.
    before: dict = field(default_factory=dict)
    asked: bool = False

    def meta(self, **more):
        return {"astrabox": {"tool": self.name, "nativeId": self.native_id, **more}}


def edited_paths(name, args):
    """The files that a call of an edit tool is about."""
    from acp_adapter.edit_approval import _extract_v4a_patch_paths

    if name not in {"write_file", "patch"}:
        return []
    if name == "patch" and args.get("mode") == "patch":
        paths = _extract_v4a_patch_paths(str(args.get("patch") or ""))
    else:
        paths = [args.get("path")]
    return [Path(os.path.join(os.getcwd(), os.path.expanduser(path))) for path in paths if path]


def unanswered(history):
    """The names of the tools of calls that have no result: the program was killed. Hermes makes results up."""
    answered = {message.get("tool_call_id") for message in history}
    calls = [call for message in history for call in message.get("tool_calls") or []]
    return [call["function"]["name"] for call in calls if call.get("id") not in answered]


def reason_of(call):
    """Why Hermes holds a command for dangerous; None for one that it does not."""
    from tools.approval import detect_dangerous_command

    return detect_dangerous_command(str(call.args.get("command")))[2] if call.name == "terminal" else None


def text_of(path):
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST + 1)
    except OSError:
        return None


def changes(before):
    """What became of these files: for each its path, and its old and new text around what changed."""
    found = []
    for path, old in before.items():
        new = text_of(Path(path))
        if new == old or max(len(old or ""), len(new or "")) > LARGEST:
            continue
        if old is None or new is None:
            found.append((path, old, new or ""))
            continue
        was, now = old.splitlines(keepends=True), new.splitlines(keepends=True)
        shorter = min(len(was), len(now))
        head = next((at for at in range(shorter) if was[at] != now[at]), shorter)
        tail = next((at for at in range(shorter - head) if was[-1 - at] != now[-1 - at]), shorter - head)
        begin, tail = max(head - CONTEXT, 0), max(tail - CONTEXT, 0)
        parts = ["".join(lines[begin : len(lines) - tail]) for lines in (was, now)]
        found.append((path, *parts))
    return found


class Client:
    """Stands before the client for Hermes' server."""

    def __init__(self, client, host):
        self._client = client
        self._host = host

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def session_update(self, session_id, update, **meta):
        if update.session_update in {"tool_call", "tool_call_update"}:
            # Told by the host's hooks.
            return
        if update.session_update == "agent_message_chunk" and self._host.between_messages:
            # Hermes sets off what it says after a tool call from what it said before, as in one text.
            update.content.text = update.content.text.removeprefix("\n\n")
            if not update.content.text:
                return
            self._host.between_messages = False
        await self._client.session_update(session_id=session_id, update=update, **meta)

    def request_permission(self, **request):
        if self._host.everything_was_asked():
            return allowed_once()
        call = self._host.call_of(request["tool_call"].raw_input)
        if call is not None:
            request["tool_call"].tool_call_id = call.id
            request["tool_call"].field_meta = call.meta()
        asking = self._client.request_permission(**request)
        return self._host.edit_asked(call, asking) if call and call.before else asking


async def allowed_once():
    from acp.schema import AllowedOutcome, RequestPermissionResponse

    outcome = AllowedOutcome(outcome="selected", option_id="allow_once")
    return RequestPermissionResponse(outcome=outcome)


def close(agent, result):
    """Ends a turn that failed or was stopped in the history with what was said of it. Hermes would send its
    prompt to the model once more, in one message with the next."""
    messages = result.get("messages") or []
    if messages and messages[-1].get("role") == "user":
        said = result["final_response"] or "The turn was stopped."
        messages.append({"role": "assistant", "content": said})
        agent._flush_messages_to_session_db(messages)


class Told(logging.Filter):
    """Leaves out errors that are answers of ours."""

    def filter(self, record):
        error = record.exc_info[1] if record.exc_info else None
        return getattr(error, "code", None) not in {LOST, FAILED}


def host_of(settings):
    """The server, hosted. A function, because Hermes is imported only once its files are in place."""
    import acp
    from acp import RequestError, tool_diff_content
    from acp.schema import McpCapabilities, PermissionOption, ToolCallUpdate, Usage
    from acp_adapter import edit_approval, server
    from acp_adapter.tools import build_tool_complete, build_tool_start, make_tool_call_id
    from gateway.session_context import declare_stateless_channel
    from hermes_cli import plugins

    # Both wait 60 s for an answer by default, which no setting changes; a person may take hours.
    server.make_approval_callback = functools.partial(server.make_approval_callback, timeout=None)
    edit_approval.make_acp_edit_approval_requester = functools.partial(
        edit_approval.make_acp_edit_approval_requester, timeout=None
    )

    options = [
        PermissionOption(option_id="allow_once", kind="allow_once", name="Allow once"),
        PermissionOption(option_id="allow_session", kind="allow_always", name="Allow for session"),
        PermissionOption(option_id="deny", kind="reject_once", name="Deny"),
        PermissionOption(option_id="deny_stop", kind="reject_once", name="Deny and stop"),
    ]

    def usage():
        return Usage(**used())

    class Host(server.HermesACPAgent):
        def __init__(self):
            super().__init__()
            self.session = None
            self.loop = asyncio.get_running_loop()
            self.lock = threading.Lock()
            # By the session and the model's id of the call: an id may come twice.
            self.calls: dict[tuple[str, str], list[Call]] = {}
            # Sub-agents by their session.
            self.runs: dict[str, str] = {}
            self.allowed: set[str] = set()
            # Questions without an answer, with the sub-agent that asks.
            self.waiting: dict[concurrent.futures.Future, str | None] = {}
            self.result = {}
            self.between_messages = True

        # -- The conversation ------------------------------------------------------------------

        def on_connect(self, conn):
            self.client = conn
            super().on_connect(Client(conn, self))

        async def initialize(self, **request):
            answer = await super().initialize(**request)
            # It takes them, and does not say so.
            answer.agent_capabilities.mcp_capabilities = McpCapabilities(http=True)
            return answer

        async def new_session(self, **request):
            opened = await super().new_session(**request)
            self.session = opened.session_id
            await self.tell_use()
            return opened

        async def resume_session(self, session_id, **request):
            # Hermes would begin another conversation in the place of one that it cannot read.
            adopt(session_id, settings["config"]["model"])
            if self.session_manager.get_session(session_id) is None:
                raise RequestError(LOST, "the stored conversation could not be taken up")
            self.session = session_id
            left = unanswered(self.state().history)
            if left:
                await self.client.ext_notification("astrabox/left", {"calls": left})
            await self.tell_use()
            return await super().resume_session(session_id=session_id, **request)

        async def tell_use(self):
            told = usage().model_dump(by_alias=True)
            await self.client.ext_notification("astrabox/used_before", told)

        def state(self):
            return self.session_manager.get_session(self.session)

        async def _replay_session_history(self, state):
            """The platform has the history."""

        def _build_model_state(self, state):
            """The platform chooses the model; listing others asks the endpoint."""

        async def prompt(self, prompt, session_id, **request):
            self.take_part(self.state().agent)
            self.result, self.between_messages = {}, True
            response = await super().prompt(prompt=prompt, session_id=session_id, **request)
            with self.lock:
                # What the end of the turn cut off.
                self.calls.clear()
            await self.keep()
            if self.result.get("failed") and response.stop_reason != "cancelled":
                raise RequestError(FAILED, self.result.get("error") or "the turn failed", self.result)
            response.usage = usage()
            response.field_meta = {"astrabox": self.result}
            return response

        async def set_session_mode(self, mode_id, session_id, **request):
            changed = await super().set_session_mode(
                mode_id=mode_id, session_id=session_id, **request
            )
            settings["config"]["command_allowlist"] = allowlist()
            configure(settings, self.state().mode)
            return changed

        async def keep(self):
            try:
                await asyncio.to_thread(save)
            except Exception as error:
                log.exception("the conversation could not be saved")
                await self.client.ext_notification("astrabox/unsaved", {"message": str(error)})

        async def cancel(self, session_id, **request):
            await super().cancel(session_id=session_id, **request)
            self.give_up(lambda _: True)

        def give_up(self, these):
            for future, run in list(self.waiting.items()):
                if these(run):
                    future.cancel()

        async def ext_method(self, method, params):
            if method == "astrabox/stop_run":
                from tools.delegate_tool import interrupt_subagent

                found = interrupt_subagent(params["run"])
                self.give_up(lambda run: run == params["run"])
                return {"found": found}
            raise RequestError.method_not_found(f"_{method}")

        # -- The agent of the conversation -----------------------------------------------------

        def take_part(self, agent):
            """Listens to an agent's turns and tools; `/model` makes another agent."""
            manager = plugins.get_plugin_manager()
            if self.pre_tool_call not in manager._hooks.get("pre_tool_call", []):
                plugins.discover_plugins()
                context = plugins.PluginContext(plugins.PluginManifest(name="astrabox"), manager)
                for hook in ("pre_tool_call", "post_tool_call", "subagent_start", "subagent_stop"):
                    context.register_hook(hook, getattr(self, hook))
            if getattr(agent, "astrabox", None) is self:
                return
            agent.astrabox = self
            agent.ephemeral_system_prompt = settings["instructions"] or None
            agent.run_conversation = functools.partial(self.run, agent, agent.run_conversation)

        def run(self, agent, run_conversation, *args, **kwargs):
            # Nobody would bring a detached sub-agent's result back into the conversation.
            declare_stateless_channel()
            compactor = agent.context_compressor
            compactions = getattr(compactor, "compression_count", 0)
            told = {}
            try:
                result = run_conversation(*args, **kwargs)
                names = {"failed": "failed", "error": "error", "turn_exit_reason": "reason"}
                told = {new: result[old] for old, new in names.items() if result.get(old) is not None}
                # An interrupted turn has none, and the server fails at that: the session would be stuck.
                result["final_response"] = result.get("final_response") or ""
                if told.get("failed") or result.get("interrupted"):
                    close(agent, result)
                return result
            except Exception as error:
                told = {"failed": True, "error": f"{type(error).__name__}: {error}"}
                raise
            finally:
                told["compactions"] = getattr(compactor, "compression_count", 0) - compactions
                self.result = told

        # -- Hooks; Hermes calls them in threads of its own --------------------------------------

        def pre_tool_call(self, tool_name="", args=None, session_id="", tool_call_id="", **_):
            try:
                return self.begin(tool_name, args or {}, session_id, tool_call_id)
            except Exception as error:
                # Hermes runs the tool when a hook fails.
                log.exception("a tool call could not be told")
                return {"action": "block", "message": f"BLOCKED: it could not be asked for: {error}"}

        def begin(self, name, args, session_id, native_id):
            call = Call(make_tool_call_id(), native_id, name, args, self.runs.get(session_id))
            call.before = {str(path): text_of(path) for path in edited_paths(name, args)}
            with self.lock:
                self.calls.setdefault((session_id, native_id), []).append(call)
            start = build_tool_start(call.id, name, args)
            start.raw_input, start.status, start.field_meta = args, "pending", call.meta()
            if call.run is None:
                self.between_messages = True
            self.tell(start, call.run)
            if getattr(self.state(), "mode", ASKING) != ASKING:
                return None
            call.asked = True
            return self.ask(call, start)

        def ask(self, call, start):
            """Asks a person; `None` allows."""
            key = json.dumps([call.name, call.args], sort_keys=True, default=str)
            if key in self.allowed:
                return None
            update = ToolCallUpdate(
                tool_call_id=call.id,
                title=start.title,
                kind=start.kind,
                status="pending",
                content=start.content,
                locations=start.locations,
                raw_input=call.args,
                field_meta=call.meta(reason=reason_of(call)),
            )
            asking = self.client.request_permission(
                session_id=call.run or self.session, tool_call=update, options=options
            )
            future = asyncio.run_coroutine_threadsafe(asking, self.loop)
            self.waiting[future] = call.run
            if self.state().cancel_event.is_set():
                # The turn was stopped before it could be found in `waiting`.
                future.cancel()
            try:
                chosen = getattr(future.result().outcome, "option_id", None)
            except concurrent.futures.CancelledError:
                chosen = None
            finally:
                del self.waiting[future]
            if chosen == "allow_session":
                self.allowed.add(key)
            if chosen in {"allow_once", "allow_session"}:
                return None
            if chosen == "deny_stop":
                stopping = self.cancel(self.session)
                asyncio.run_coroutine_threadsafe(stopping, self.loop).result(TELLING)
            said = "denied this call" if chosen == "deny" else "stopped the turn"
            return {
                "action": "block",
                "message": f"BLOCKED: The user {said}. Do NOT retry it, do NOT rephrase it.",
            }

        def everything_was_asked(self):
            """Whether the call for which Hermes asks by itself was asked for already."""
            with self.lock:
                begun = [call for calls in self.calls.values() for call in calls]
            return bool(begun) and all(call.asked for call in begun)

        def call_of(self, asked):
            """The call for which Hermes asks by itself, where only one can be meant."""
            with self.lock:
                begun = [call for calls in self.calls.values() for call in calls if not call.run]
            if "arguments" in asked:
                fits = [call for call in begun if call.args == asked["arguments"]]
            else:
                fits = [call for call in begun if call.name in {"terminal", "execute_code"}]
            return fits[0] if len(fits) == 1 else None

        async def edit_asked(self, call, asking):
            """Asks for an edit by Hermes' own question. For one that is refused it calls no hook."""
            response = await asking
            if getattr(response.outcome, "option_id", None) != "allow_once":
                with self.lock:
                    self.calls = {
                        key: [one for one in calls if one is not call]
                        for key, calls in self.calls.items()
                    }
                text = json.dumps({"error": "The edit was not allowed; no file was changed."})
                done = build_tool_complete(call.id, call.name, result=text, function_args=call.args)
                done.raw_output, done.status = text, "failed"
                done.field_meta = call.meta(status="blocked")
                await self.client.session_update(session_id=self.session, update=done)
            return response

        def post_tool_call(self, tool_name="", args=None, result=None, session_id="",
                           tool_call_id="", status="ok", **_):
            with self.lock:
                begun = self.calls.get((session_id, tool_call_id))
                if not begun:
                    return
                call = begun.pop(0)
                if not begun:
                    del self.calls[session_id, tool_call_id]
            text = result if isinstance(result, str) else json.dumps(result, default=str)
            done = build_tool_complete(call.id, tool_name, result=text, function_args=args or {})
            done.raw_output = text
            if status != "ok":
                done.status = "failed"
            changed = changes(call.before) if done.status == "completed" else []
            if changed:
                done.content = [tool_diff_content(path, new, old) for path, old, new in changed]
                gone = all(text_of(Path(path)) is None for path, _, _ in changed)
                done.kind = "delete" if gone else done.kind
            done.field_meta = call.meta(status=status)
            self.tell(done, call.run)

        def subagent_start(self, parent_session_id=None, child_session_id=None,
                           child_subagent_id=None, child_goal=None, **_):
            self.runs[child_session_id] = child_subagent_id
            with self.lock:
                begun = [call for (session, _), calls in self.calls.items()
                         for call in calls if session == parent_session_id]
            call = next((call.id for call in begun if call.name == "delegate_task"), None)
            self.tell_run(child_subagent_id, state="running", goal=child_goal, call=call)

        def subagent_stop(self, child_session_id=None, child_status=None, child_summary=None, **_):
            run = self.runs.pop(child_session_id, None)
            if run is None:
                return
            if child_summary:
                self.tell(acp.update_agent_message_text(child_summary), run)
            self.tell_run(run, state=child_status)

        def tell(self, update, run=None):
            telling = self.client.session_update(session_id=run or self.session, update=update)
            asyncio.run_coroutine_threadsafe(telling, self.loop).result(TELLING)

        def tell_run(self, run, **told):
            params = {"sessionId": self.session, "run": run, **told}
            telling = self.client.ext_notification("astrabox/run", params)
            asyncio.run_coroutine_threadsafe(telling, self.loop).result(TELLING)

        # -- The end ---------------------------------------------------------------------------

        async def end(self):
            """Stops what runs, and keeps the conversation."""
            if self.session is None:
                return
            state = self.state()
            if state.is_running:
                await self.cancel(self.session)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.idle(state), STOPPING)
            await asyncio.to_thread(save)

        async def idle(self, state):
            while state.is_running:
                await asyncio.sleep(0.02)

    async def serve():
        host = Host()
        await acp.run_agent(host, use_unstable_protocol=True)
        await host.end()

    return serve


def main():
    handler = logging.StreamHandler(sys.stderr)
    # Hermes sets the level of the root logger; what is less than an error is in its own log file.
    handler.setLevel(logging.ERROR)
    handler.addFilter(Told())
    logging.getLogger().addHandler(handler)
    settings = json.loads(Path(sys.argv[2]).read_text())
    prepare(settings)
    try:
        asyncio.run(host_of(settings)())
    except Exception:
        log.exception("the host failed")
    finally:
        sys.stdout.flush()
        # Not by the interpreter's own way: it waits for threads that may wait for a person.
        os._exit(0 if sys.exc_info()[0] is None else 1)


main()
