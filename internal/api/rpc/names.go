package rpc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// namespaceName returns "namespaces/{n}".
func namespaceName(namespace string) string { return "namespaces/" + namespace }

// jobName returns "namespaces/{n}/jobs/{j}".
func jobName(k job.Key) string { return "namespaces/" + k.Namespace + "/jobs/" + k.ID }

// RunName returns "namespaces/{n}/jobs/{j}/runs/{r}".
func RunName(k job.Key, runID string) string { return string(appendRunName(nil, k, runID)) }

func appendRunName(b []byte, k job.Key, runID string) []byte {
	b = append(append(b, "namespaces/"...), k.Namespace...)
	b = append(append(b, "/jobs/"...), k.ID...)
	return append(append(b, "/runs/"...), runID...)
}

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

// queueName returns "namespaces/{n}/queues/{q}".
func queueName(q job.QueueKey) string { return namespaceName(q.Namespace) + "/queues/" + q.Queue }

// parseQueue reads the name of a queue, whose rules are in [job.ValidateQueue].
func parseQueue(field, name string) (job.QueueKey, error) {
	ids, err := parseName(field, name, "namespaces", "queues")
	if err != nil {
		return job.QueueKey{}, err
	}
	q := job.QueueKey{Namespace: ids[0], Queue: ids[1]}
	for _, v := range job.ValidateQueue(q) {
		return job.QueueKey{}, job.Invalid(field, "%s %s", v.Field, v.Description)
	}
	return q, nil
}

// letterOfJob stands for the slot of a dead letter that is the job itself.
const letterOfJob = "job"

// letterName returns "namespaces/{n}/jobs/{j}/deadLetters/{slot}".
func letterName(record job.RecordID) string {
	slot := letterOfJob
	if n, ok := record.LetterSlot(); ok {
		slot = strconv.Itoa(n)
	}
	return jobName(record.Key()) + "/deadLetters/" + slot
}

// parseLetter returns the record of a dead letter, which must be of a namespace.
func parseLetter(field, name, namespace string) (job.RecordID, error) {
	ids, err := parseName(field, name, "namespaces", "jobs", "deadLetters")
	if err != nil {
		return "", err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	if err := validKey(field, key); err != nil {
		return "", err
	}
	if key.Namespace != namespace {
		return "", job.Invalid(field, "%q is of another namespace than parent", job.Clip(name, 80))
	}
	if ids[2] == letterOfJob {
		return key.Record(), nil
	}
	slot, err := strconv.Atoi(ids[2])
	if err != nil || slot < 0 || slot >= job.DeadLettersPerJob || strconv.Itoa(slot) != ids[2] {
		return "", job.Invalid(field, "%q: a slot is %q or 0 to %d", job.Clip(name, 80), letterOfJob, job.DeadLettersPerJob-1)
	}
	return key.Record().Letter(slot), nil
}

// validKey reports faults of a name's parts under the field that holds the name.
func validKey(field string, key job.Key) error {
	for _, v := range job.ValidateKey(key) {
		return job.Invalid(field, "%s: %s", v.Field, v.Description)
	}
	return nil
}
