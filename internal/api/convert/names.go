package convert

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
)

// NamespaceName returns "namespaces/{n}".
func NamespaceName(namespace string) string { return "namespaces/" + namespace }

// JobName returns "namespaces/{n}/jobs/{j}".
func JobName(k job.Key) string { return "namespaces/" + k.Namespace + "/jobs/" + k.ID }

// RunName returns "namespaces/{n}/jobs/{j}/runs/{r}".
func RunName(k job.Key, runID string) string { return string(AppendRunName(nil, k, runID)) }

func AppendRunName(b []byte, k job.Key, runID string) []byte {
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

func ParseNamespace(field, name string) (string, error) {
	ids, err := parseName(field, name, "namespaces")
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// AnyNamespace takes the place of a namespace in a parent: all namespaces that the caller may see. No namespace has
// this name.
const AnyNamespace = "-"

// ParseNamespaceOrAll is parseNamespace, where no name means all namespaces.
func ParseNamespaceOrAll(field, name string) (string, error) {
	if name == "" {
		return authz.AllNamespaces, nil
	}
	return ParseNamespace(field, name)
}

// ParseNamespaceOrDash is ParseNamespaceOrAll, where "namespaces/-" means all as well.
func ParseNamespaceOrDash(field, name string) (string, error) {
	if name == "namespaces/-" {
		return authz.AllNamespaces, nil
	}
	namespace, err := ParseNamespaceOrAll(field, name)
	if err == nil && namespace != authz.AllNamespaces {
		err = ValidateKey(field, job.Key{Namespace: namespace, ID: "x"})
	}
	return namespace, err
}

func ParseJobName(field, name string) (job.Key, error) {
	ids, err := parseName(field, name, "namespaces", "jobs")
	if err != nil {
		return job.Key{}, err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	return key, ValidateKey(field, key)
}

func ParseRunName(field, name string) (job.Key, string, error) {
	ids, err := parseName(field, name, "namespaces", "jobs", "runs")
	if err != nil {
		return job.Key{}, "", err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	err = ValidateKey(field, key)
	fault := job.ValidateRunID(ids[2])
	if err == nil && fault != "" {
		err = job.Invalid(field, "run: %s", fault)
	}
	return key, ids[2], err
}

// queueName returns "namespaces/{n}/queues/{q}".
func queueName(q job.QueueKey) string { return NamespaceName(q.Namespace) + "/queues/" + q.Queue }

// ParseQueueName reads the name of a queue, whose rules are in [job.ValidateQueue].
func ParseQueueName(field, name string) (job.QueueKey, error) {
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

// DeadLetterName returns "namespaces/{n}/jobs/{j}/deadLetters/{slot}".
func DeadLetterName(record job.RecordID) string {
	slot := letterOfJob
	if n, ok := record.LetterSlot(); ok {
		slot = strconv.Itoa(n)
	}
	return JobName(record.Key()) + "/deadLetters/" + slot
}

// ParseDeadLetter returns the record of a dead letter, which must be of a namespace.
func ParseDeadLetter(field, name, namespace string) (job.RecordID, error) {
	record, err := ParseDeadLetterName(field, name)
	if err == nil && record.Key().Namespace != namespace {
		return "", job.Invalid(field, "%q is of another namespace than parent", job.Clip(name, 80))
	}
	return record, err
}

// ParseDeadLetterName returns the record of a dead letter.
func ParseDeadLetterName(field, name string) (job.RecordID, error) {
	ids, err := parseName(field, name, "namespaces", "jobs", "deadLetters")
	if err != nil {
		return "", err
	}
	key := job.Key{Namespace: ids[0], ID: ids[1]}
	if err := ValidateKey(field, key); err != nil {
		return "", err
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

// ValidateKey reports faults of a name's parts under the field that holds the name.
func ValidateKey(field string, key job.Key) error {
	for _, v := range job.ValidateKey(key) {
		return job.Invalid(field, "%s: %s", v.Field, v.Description)
	}
	return nil
}
