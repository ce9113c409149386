package main

import (
	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/manifest"
)

const fileHelp = `A file holds one or more YAML (or JSON) documents, each a job or a list of jobs,
with the field names of the API, and besides:

  id            the job's id, if "name" is not set
  http, exec    payload of the built-in handler of that name, which becomes
                the job's handler
  payload_text  payload as text ("payload" is base64)
  payload_json  payload as any value, stored as compact JSON with sorted keys

A document may also be a mapping of "jobs", to a list or to jobs by their id.
Durations may be written as 90s, 5m or 1h30m, enum values in lower case without
prefix:

  id: ping
  http:
    url: https://example.com/health
    expected_status: ["200-299"]
  schedule:
    interval: {every: 30s}
  backoff_policy:
    max_delay: 10m
    jitter: {kind: equal}`

// readJobs reads the jobs of a file, for commands that accept nothing else in it.
func (a *app) readJobs(path string) ([]client.NewJob, error) {
	in := a.newInput(path)
	text, err := a.readInputFile(in)
	if err != nil {
		return nil, err
	}
	set, faults := manifest.Read(path, text, a.namespace)
	faults = withoutContent(in, faults)
	for i := range set.Queues {
		faults = append(faults, set.Queues[i].Locate("", "limits of queues are for fermata apply"))
	}
	jobs := make([]client.NewJob, len(set.Jobs))
	for i := range set.Jobs {
		j := &set.Jobs[i]
		if j.Paused != nil {
			faults = append(faults, j.Locate("paused", "is for fermata apply; see fermata jobs pause"))
		}
		jobs[i] = client.NewJob{ID: j.ID, Job: j.Job}
	}
	if len(faults) > 0 {
		return nil, newUsageError(faults.Sorted())
	}
	if len(jobs) == 0 {
		return nil, usageErrorf("%s holds no job", path)
	}
	return jobs, nil
}
