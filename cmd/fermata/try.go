package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// tryPollInterval lies between two looks at the job.
	tryPollInterval = 500 * time.Millisecond
	// tryCleanupTimeout bounds the deletion of the job, also after the command's time is over.
	tryCleanupTimeout = 5 * time.Second
)

func (a *app) tryCommand() *cobra.Command {
	var queue string
	var every time.Duration
	cmd := &cobra.Command{
		Use: "self-test", Short: "Check that jobs run and back off, with a temporary job",
		Long: "Register a job that fails, wait until a worker has run it and the cluster waits longer than its " +
			"interval\n" +
			"before the next run, and delete it. Its handler is http, and its address one that workers refuse, so " +
			"nothing\n" +
			"is called. Needs a worker of the queue with that handler. The exit code is 1 if no run was seen in " +
			"time, which\n" +
			"--request-timeout gives; 30s is enough in most clusters.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd, func(ctx context.Context,
				c *client.Client) error {
				return a.runTrial(ctx, c, queue, every)
			})
		},
	}
	cmd.Flags().StringVar(&queue, "queue", "default", "queue of the job")
	config.DurationVar(cmd.Flags(), &every, "every", 5*time.Second, "interval of the job; nodes may demand a longer one")
	return cmd
}

// runTrial registers the job, and deletes it whatever happens.
func (a *app) runTrial(ctx context.Context, c *client.Client, queue string, every time.Duration) (err error) {
	id := "fermata-self-test-" + strings.ToLower(rand.Text()[:10])
	payload := client.HTTPRequest{URL: "http://127.0.0.1/"}.Payload()
	_, err = c.CreateJob(ctx, id, &client.Job{Queue: queue, Handler: "http", Payload: payload,
		Schedule: client.Every(every)})
	if refused := status.Code(err); refused == codes.InvalidArgument || refused == codes.PermissionDenied ||
		refused == codes.Unauthenticated {
		return err
	}
	// After any other error it may be there all the same.
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryCleanupTimeout)
		defer cancel()
		if deleteErr := c.DeleteJob(cleanup, id, client.DeleteOptions{}); deleteErr != nil && !client.IsNotFound(deleteErr) {
			err = errors.Join(err, fmt.Errorf("delete %s: %w", id, deleteErr))
		}
	}()
	if err != nil {
		return err
	}
	if err := a.println("registered " + id + " in queue " + queue); err != nil {
		return err
	}
	j, err := awaitBackoff(ctx, c, id, every)
	if err != nil {
		return err
	}
	return a.println(fmt.Sprintf("it ran, failed as it should, and now runs every %v instead of %v",
		j.GetStatus().GetEffectiveInterval().AsDuration(), every))
}

// awaitBackoff waits until the job has failed and its interval has grown.
func awaitBackoff(ctx context.Context, c *client.Client, id string, every time.Duration) (*client.Job, error) {
	tick := time.NewTicker(tryPollInterval)
	defer tick.Stop()
	var s *fermatav1.JobStatus // as it was seen last
	for {
		j, err := c.GetJob(ctx, id)
		if err != nil {
			if overdue := ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded; overdue && s != nil {
				return nil, trialTimeoutError(s)
			}
			return nil, err
		}
		s = j.GetStatus()
		if s.GetConsecutiveFailures() > 0 && s.GetEffectiveInterval().AsDuration() > every {
			return j, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, trialTimeoutError(s)
		}
	}
}

// trialTimeoutError returns how far the job has come.
func trialTimeoutError(s *fermatav1.JobStatus) error {
	if s.GetState() == fermatav1.JobStatus_STATE_RUNNING {
		return errors.New("a worker has the job, but no result came in time")
	}
	return errors.New("no worker has run the job in time: is there one for this queue, with the handler http?")
}
