package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// printsNames marks the commands that know -o name.
const printsNames = "prints-names"

func withNames(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{printsNames: "yes"}
	return cmd
}

// printNames writes the name by which other commands take what a message describes.
func (a *app) printNames(m proto.Message) error {
	name := ""
	switch v := m.(type) {
	case *client.Job:
		name = client.JobID(v)
	case *fermatav1.TopJob:
		name = client.JobID(v.GetJob())
		if namespace, _ := jobParts(v.GetJob()); namespace != a.namespace {
			name = v.GetJob().GetName()
		}
	case *client.Run:
		name = client.RunID(v)
	case *client.DeadLetter:
		name = letterName(v)
	case *fermatav1.Queue:
		name = v.GetQueue()
	case *fermatav1.Node:
		name = v.GetName()
	case *fermatav1.Worker:
		name = v.GetWorkerId()
	case *fermatav1.Shard:
		name = strconv.Itoa(int(v.GetShard()))
	default:
		return errors.New("this has no name")
	}
	return a.println(printable(name))
}
