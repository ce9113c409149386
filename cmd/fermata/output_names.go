package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// printsNames marks the commands that know -o name.
const printsNames = "prints-names"

func withNames(cmd *cobra.Command) *cobra.Command {
	annotate(cmd, printsNames)
	return cmd
}

// printNames writes the name that other commands accept for the object of a message.
func (a *app) printNames(m proto.Message) error {
	name := ""
	switch v := m.(type) {
	case *client.Job:
		name = a.jobNameHere(v)
	case *fermatav1.TopJob:
		name = a.jobNameHere(v.GetJob())
	case *client.JobRevision:
		name = strconv.FormatInt(v.GetRevision(), 10)
	case *client.Run:
		name = client.RunID(v)
	case *client.DeadLetter:
		name = letterName(v)
		if letterNamespace(v) != a.namespace {
			name = v.GetName()
		}
	case *client.Target:
		name = v.GetTarget()
	case *client.LockStatus:
		name = v.GetKey()
	case *client.UpcomingRun:
		name = v.GetName()
	case *client.Namespace:
		name = strings.TrimPrefix(v.GetName(), "namespaces/")
	case *fermatav1.Queue:
		name = v.GetQueue()
	case *client.QueueSettings:
		name = v.GetName()[strings.LastIndexByte(v.GetName(), '/')+1:]
	case *fermatav1.Node:
		name = v.GetName()
	case *fermatav1.Worker:
		name = v.GetWorkerId()
	case *client.AuditRecord:
		name = v.GetId()
	case *client.AuditExport:
		name = v.GetName()
	case *client.Webhook:
		name = v.GetName()
	case *client.UndeliveredEvent:
		name = v.GetEvent().GetId()
	case *fermatav1.Shard:
		name = strconv.Itoa(int(v.GetShard()))
	default:
		return errors.New("this has no name")
	}
	return a.println(printableText(name))
}

// jobNameHere is the id of a job, or its full name if it is of another namespace.
func (a *app) jobNameHere(j *client.Job) string {
	if namespace, id := splitJobName(j); namespace == a.namespace {
		return id
	}
	return j.GetName()
}
