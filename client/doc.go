// Package client registers jobs with a Fermata cluster and shows what became of
// them.
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
// Any node answers for the whole cluster. With several addresses calls go to
// them in turn, and around those that do not answer.
//
// Calls are repeated when the cluster says that this is worth while (UNAVAILABLE,
// or ABORTED or RESOURCE_EXHAUSTED with a delay), up to [Options.Attempts] in all and never past the
// context's deadline. That is safe: calls that would do something twice carry a request
// id, so that a repetition of one whose answer was lost gets the first answer, and the
// others change nothing the second time. What those that work on many jobs count is what the
// last try did.
//
// Jobs are named by their id, which means the client's namespace, or by their
// full name, "namespaces/{namespace}/jobs/{job}".
//
// Errors are gRPC statuses. [IsNotFound], [IsConflict], [Violations] and others
// ask them.
package client
