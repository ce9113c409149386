// Package exechandler makes a handler that runs one program an attempt. It exists
// on Linux, on amd64 and arm64.
//
// The payload is JSON:
//
//	{
//	  "argv": ["/usr/local/bin/report", "--day", "today"],
//	  "env": {"REGION": "eu", "API_KEY": "${secret:report-key}"},
//	  "dir": "/var/lib/reports",  // in Options.Dir or below, which it is when unset
//	  "stdin": "text"
//	}
//
// Variables and stdin may refer to secrets, see package secrets, that may go to the
// program of argv[0]. Whoever is the same user reads the variables of a program in
// /proc: stdin is the better way.
//
// The program sees PATH, HOME, LANG, what env names and Options.Env allows, and FERMATA_RUN,
// FERMATA_NAMESPACE, FERMATA_JOB, FERMATA_ATTEMPT, FERMATA_TOKEN and
// FERMATA_CORRELATION_ID; of a traced run also TRACEPARENT and TRACESTATE. An exit status
// other than 0 fails the attempt. A variable or a directory that is not allowed fails the
// run at once: another attempt would not be allowed either. A program that is ended by SIGTERM has not done
// its work, whatever its status: the attempt ends as cancelled, timed out or cut off. The output is JSON with exit_code, signal,
// duration_ms, bytes, and the end of what was written to stdout and stderr.
//
// Each program has a supervisor, a process that is this program started once more (see
// internal/launch). It is of this process's user; programs should be of another
// (Options.User), as who may kill the supervisor can leave it.
//
// Invariants:
//
//  1. Only programs that Options.Allow names by their absolute path run, and only
//     the files that these were when the worker started, links followed. Every directory
//     and link on the way, and the file, belongs to root or the worker's user and cannot be
//     written by others; this is looked at before each start. A missing program may come
//     later where nobody else can create it. There is no shell: arguments reach the
//     program as they are. Allowing a shell or an interpreter allows everything.
//  2. Nothing of the worker's environment is handed on, and a payload sets the variables that
//     Options.Env allows and no other. No option allows those that are the worker's
//     (PATH, HOME, ...) or steer the dynamic loader. A payload decides about the working
//     directory below Options.Dir only.
//  3. A program is not root unless Options.AllowRoot says so, gains no privileges by
//     what it starts (no_new_privs), and is under Options.Limits from its first
//     instruction on.
//  4. The program leads its own session and process group. At the end of the
//     attempt's time the group gets SIGTERM, and everything SIGKILL after Options.Grace. When the
//     program has ended, or this process has, whatever comes from the program is killed, until
//     there is nothing: daemons too, whatever session and environment they gave themselves, as
//     they become children of the supervisor. Where this process may make control groups,
//     each attempt has one too, which is killed as well. If the supervisor is killed, the kernel kills
//     the program, and with a control group or with Options.Init what the program started is
//     killed by this process; with neither, it goes on. Children that this process had before
//     the first handler was made are spared.
//  5. The handler returns when nothing of the attempt is left. What cannot be killed within ten
//     seconds fails the attempt, and the supervisor goes on.
//  6. A secret stands in no error, no output and no argument.
package exechandler
