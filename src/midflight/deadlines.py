"""How long who waits for whom, in seconds, wherever two programs wait for each other.

Each line says who waits -> for whom, and why so long. What depends on another line is written that
way. A wait that concerns one program alone is a constant of the module that waits, and the pauses
between two attempts, or two looks at what gives no event, are in `backoff`.
"""

# --- a resize: the coordinator's clock decides, and whoever asks waits for what it says -----------
RESIZE = 60.0  # user -> coordinator: then the change is taken back, where nothing else was said
LONGEST_RESIZE = 86400  # the same, at the most
PROGRESS = 1.0  # client -> coordinator: it repeats so often how far a request is
CLIENT_SILENCE = 10 * PROGRESS  # client -> coordinator: without a word, it dials again
RESIZE_ANSWER = 60.0  # `midflight resize` -> coordinator, where a person waits; then it gives up
RESTART = 5.0  # command line -> launcher: to start a coordinator that died again
MONKEY_RESIZE = 30.0  # chaos monkey -> coordinator: then the change is undone
RECOVERY = 120.0  # chaos monkey -> training: to make a step after a strike
STATUS = 3.0  # client -> coordinator: it answers from memory, so it is gone or hangs

# --- lines to the coordinator ---------------------------------------------------------------------
HANDSHAKE = 10.0  # both ends: milliseconds, but seconds where a thousand members dial at once
DIAL = 3.0  # agent, client -> coordinator: to be let in, before it dials again
MEMBER_BEAT = 0.2  # coordinator -> member: it is heard so often; less often in large worlds,
LONGEST_BEAT = 1.0  # but so often at the least, well below the lease of a host,
BEATS_HEARD = 2500  # because the coordinator hears so many in a second, of all members together
MEMBER_SILENCE = 0.7  # coordinator -> member: three beats and a half, then its host is asked
AGENT_BEAT = 0.25  # coordinator -> agent: it is heard so often
LINE_SILENCE = 5.0  # member, agent -> coordinator, which answers each beat: then it dials again
HOST_LEASE = LINE_SILENCE  # coordinator -> agent: to notice as well, and to come back
COME_BACK = 60.0  # coordinator -> agent: the same where the coordinator moves, as names are cached
CONNECT = 120.0  # member -> member: to connect a process group; one that dies is found sooner
CONNECT_EACH = 0.25  # the same, for each member more: one coordinator hands out the keys of all
LONGEST_ABSENCE = 600.0  # member, agent -> coordinator, if it is needed; it -> enough members
HANG = 600.0  # coordinator -> member that lives, but stands still while the others wait
FIRST_MEMBERS = 30.0  # coordinator -> members: then the fewest that will do may start

TEMPLATE_START = 20.0  # agent -> template that imports torch: then members start cold
TEMPLATE_FORK = 2.0  # agent -> template that has forked before: then this member starts cold

# --- the end --------------------------------------------------------------------------------------
GRACE = 30.0  # agent, keeper, kubelet -> member: from the notice (SIGTERM) to SIGKILL
STOP_GRACE = 10.0  # server -> instance that is stopped: SIGTERM, and after that SIGKILL
STOP_LATE = 5.0  # server -> instance: SIGKILL again, if it is late
JOB_GONE = 120.0  # `delete` -> server: for all instances of a job to be gone
AGENTS_LEAVE = 4.0  # coordinator -> agents: to end their members, and hang up
TRAINING_END = 4.0  # launcher -> coordinator: for an orderly end after the first signal
AGENTS_END = 2.0  # launcher -> agents, once their coordinator has ended
AGENTS_END_SOON = 0.5  # the same, if someone waits for the end
KILLED = 5.0  # agent, server -> processes after SIGKILL: what is left by then hangs in the kernel
CHILD_KILLED = 1.0  # launcher -> its own child after SIGKILL
RUN_GONE = 60.0  # `stop` -> launcher, coordinator and agents

# --- the server of this machine, and those who ask it ---------------------------------------------
SERVER_START = 20.0  # client -> server: until it answers
SERVER_END = 10.0  # `down` -> server: until it has let go of its folder
SERVER_ANSWER = 30.0  # client -> server: beyond what a question asks it to wait
KEEPER_REPORT = 30.0  # server -> keeper: to say that its instance runs, or why not
ATTEMPT_END = 15.0  # server -> earlier attempt of an instance, which must be over before the next
INSTANCES_FOUND = 5.0  # server that starts -> its instances; those found later are seen then
REST_KILLED = 20.0  # server -> what is left of a job that is being removed
FETCH = 600.0  # server, pod -> git or rsync: for the whole of a job's code, however often it fails
LONG_POLL = 20.0  # client -> server: of one question that waits; then it is asked again

# --- Kubernetes -----------------------------------------------------------------------------------
WATCH = 240  # operator, verbs -> API server: of one watch; then it is begun anew
WATCH_SILENCE = WATCH + 30.0  # operator -> API server: it should have ended the watch by then
OPERATOR = 300.0  # `operator install --wait` -> operator; `uninstall` -> jobs to be gone
NEW_KINDS = 60.0  # `operator install` -> API server: to serve the custom resources
JOIN = 86400  # worker's pod -> launcher's; the controller gives up long before


def beat_seconds(members: int) -> float:
    """How often each of so many members is heard; silence is counted in proportion."""
    return min(LONGEST_BEAT, max(MEMBER_BEAT, members / BEATS_HEARD))
