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
// the nodes, and nodes that do not answer are avoided.
//
// Calls are retried if the error is retryable (UNAVAILABLE, or ABORTED or RESOURCE_EXHAUSTED
// with a delay), up to [Options].Attempts attempts and never past the context's deadline. That is
// safe: calls that are not idempotent carry a request id, so that a retry after a lost response
// gets the first response. For calls that change many jobs, the returned counts are those of the
// last attempt.
//
// Jobs are named by their id, in the client's namespace, or by their full name,
// "namespaces/{namespace}/jobs/{job}".
//
// Errors are gRPC statuses. [IsNotFound], [IsConflict], [Violations] and others examine them.
package client
