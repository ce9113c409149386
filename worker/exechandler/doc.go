// Package exechandler makes a handler that runs one program an attempt. It exists
// on Linux.
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
// The program sees PATH, HOME (its directory), LANG, what env names, and FERMATA_RUN,
// FERMATA_NAMESPACE, FERMATA_JOB, FERMATA_ATTEMPT, FERMATA_TOKEN and
// FERMATA_CORRELATION_ID; of a traced run also TRACEPARENT and TRACESTATE. An exit status other than 0 fails the attempt; 126 may say
// that the program could not be started. A program that is ended by SIGTERM has not done
// its work, whatever its status: the attempt ends as cancelled, timed out or cut off. The output is JSON with exit_code, signal,
// duration_ms, bytes, and the end of what was written to stdout and stderr.
//
// Invariants:
//
//  1. Only programs that Options.Allow names by their absolute path run, and only
//     the files that these were when the worker started, links followed. A file that
//     anybody can replace does not run. There is no shell: arguments reach the
//     program as they are. Allowing a shell or an interpreter allows everything.
//  2. Nothing of the worker's environment is handed on, and no variable of which it
//     is known that it makes a loader or an interpreter run other code can be set.
//  3. A program is not root unless Options.AllowRoot says so, gains no privileges by
//     what it starts (no_new_privs), and is under Options.Limits from its first
//     instruction on.
//  4. The program leads its own session and process group. At the end of the
//     attempt's time the group gets SIGTERM, and SIGKILL after Options.Grace. What is
//     left of the group when the program ends is killed with SIGKILL, and so are
//     processes that left the group with the attempt's variables. Where they come to
//     this process when their parent has ended, as in a container, they are reaped;
//     with Options.Init so are those that ended by themselves, at the latest when the
//     next attempt ends. If the worker is killed, the kernel kills the program.
//  5. The handler returns soon after the program has ended, even if a process
//     that left the group holds its output open.
//  6. A secret stands in no error, no output and no argument.
package exechandler
