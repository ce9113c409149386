package rpc

import (
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/job"
)

// namespaceName returns "namespaces/{n}".
func namespaceName(namespace string) string { return "namespaces/" + namespace }

// jobName returns "namespaces/{n}/jobs/{j}".
func jobName(k job.Key) string { return namespaceName(k.Namespace) + "/jobs/" + k.ID }

// RunName returns "namespaces/{n}/jobs/{j}/runs/{r}".
func RunName(k job.Key, runID string) string { return jobName(k) + "/runs/" + runID }

// parseName splits a resource name by its collections.
func parseName(field, name string, collections ...string) ([]string, error) {
	parts := strings.Split(name, "/")
	ids := make([]string, 0, len(collections))
	good := len(parts) == 2*len(collections)
	for i := 0; good && i < len(collections); i++ {
		good = parts[2*i] == collections[i] && parts[2*i+1] != ""
		ids = append(ids, parts[2*i+1])
	}
	if good {
		return ids, nil
	}
	pattern := ""
	for _, c := range collections {
		pattern += fmt.Sprintf("/%s/{%s}", c, strings.TrimSuffix(c, "s"))
	}
	return nil, job.Invalid(field, "%q is not of the form %s", job.Clip(name, 80), pattern[1:])
}

func parseNamespace(field, name string) (string, error) {
	ids, err := parseName(field, name, "namespaces")
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

func parseJob(field, name string) (job.Key, error) {
	ids, err := parseName(field, name, "namespaces", "jobs")
	if err != nil {
		return job.Key{}, err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	return key, validKey(field, key)
}

func parseRun(field, name string) (job.Key, string, error) {
	ids, err := parseName(field, name, "namespaces", "jobs", "runs")
	if err != nil {
		return job.Key{}, "", err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	return key, ids[2], validKey(field, key)
}

// validKey reports faults of a name's parts under the field that holds the name.
func validKey(field string, key job.Key) error {
	for _, v := range job.ValidateKey(key) {
		return job.Invalid(field, "%s: %s", v.Field, v.Description)
	}
	return nil
}
