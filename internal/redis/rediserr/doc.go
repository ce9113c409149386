// Package rediserr classifies errors of Redis commands: which may be retried, which may have taken
// effect, and which error of package job callers get.
//
// A command fails in one of three ways. The server rejects it: it had no effect. It was never sent.
// Or its reply was lost: it may have had its effect, so that it may only be retried if the retry is
// recognised. [Classify] distinguishes these; [Wrap] adds the name of the operation and the error of
// package job to it.
package rediserr
