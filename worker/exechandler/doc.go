// Package exechandler makes a handler that runs one program an attempt. It exists
// on Linux.
//
// The payload is JSON:
//
//	{
//	  "argv": ["/usr/local/bin/report", "--day", "today"],
//	  "env": {"REGION": "eu"},
//	  "dir": "/var/lib/reports",  // / when unset
//	  "stdin": "text"
//	}
//
// The program sees PATH, what env names, and FERMATA_RUN, FERMATA_NAMESPACE,
// FERMATA_JOB, FERMATA_ATTEMPT, FERMATA_TOKEN and FERMATA_CORRELATION_ID. An exit
// status other than 0 fails the attempt. The output is JSON with exit_code, signal,
// duration_ms, bytes, and the end of what was written to stdout and stderr.
//
// Invariants:
//
//  1. Only programs that Options.Allow names by their absolute path run. There is
//     no shell: arguments reach the program as they are. Allowing a shell or an
//     interpreter allows everything.
//  2. Nothing of the worker's environment is handed on, and no variable that
//     makes a loader or an interpreter run other code can be set.
//  3. The program leads its own process group. At the end of the attempt's time the
//     group gets SIGTERM, and SIGKILL after Options.Grace. What is left of the
//     group when the program ends is killed with SIGKILL: nothing stays behind.
//  4. The handler returns soon after the program has ended, even if a process
//     that left the group holds its output open.
package exechandler
