// Package client creates, changes and observes jobs in a Fermata cluster.
//
//	c, err := client.Dial([]string{"scheduler-0:7070", "scheduler-1:7070"}, client.Options{})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	_, err = c.CreateJob(ctx, "ping", &client.Job{
//		Handler:  "http",
//		Payload:  client.HTTPRequest{URL: "https://example.com/health"}.Payload(),
//		Schedule: client.Every(30 * time.Second),
//	})
//
// Any node answers for the whole cluster. With several addresses, calls are distributed over
// the nodes, and nodes that do not answer are avoided. The calls of operators (nodes, shards,
// limits of queues, backups, webhooks, audit trail) are methods of [Client.Admin].
//
// # Names and options
//
// Jobs are named by their id, in the client's namespace, or by their full name,
// "namespaces/{namespace}/jobs/{job}". Runs are named by their full name, which is in
// [Run].Name; [Client.RunName] makes it of two ids. Options are a struct, the last argument of
// a call. Its zero value uses the defaults. Lists of unknown length are iterators that request
// pages as they are needed.
//
// # Retries and request ids
//
// Calls are retried if the error is retryable (UNAVAILABLE, or ABORTED or RESOURCE_EXHAUSTED
// with a delay), up to [Options].Attempts attempts and never past the context's deadline. That
// is safe: calls that are not idempotent carry a request id, so that a retry after a lost
// response gets the first response. For calls that change many jobs, the returned counts are
// those of the last attempt.
//
// A program that may repeat a call itself, for example after a restart, chooses the id:
// [RunOptions].RequestID for a manual run, [Backfill].ID for a backfill, and the id of a job for
// its creation. Creating a job again with the same definition succeeds.
//
// # Read, modify, write
//
// A job that was read has an etag, which changes with each edit. [Client.UpdateJob] sends it, and
// fails with [ErrConflict] if the job was edited since: read the job again and repeat the
// change. The same holds for [DeleteOptions].Etag, for [DesiredJob].Etag from a plan, and for
// [SetQueueSettingsOptions].Expected. Without an etag, the last call wins.
//
//	for {
//		job, err := c.GetJob(ctx, "ping")
//		if err != nil {
//			return err
//		}
//		job.Payload = payload
//		_, err = c.UpdateJob(ctx, job, "payload")
//		if !errors.Is(err, client.ErrConflict) {
//			return err
//		}
//	}
//
// # Errors
//
// Errors match the sentinels of this package by [errors.Is], such as [ErrNotFound] and
// [ErrConflict], and the errors of a context that has ended. [Violations] returns the invalid
// fields, [ErrorReason] the reason for programs. Errors are also gRPC statuses.
package client
