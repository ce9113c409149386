package main

import "github.com/spf13/cobra"

// examples has the examples of commands whose definition has none, by the command's path.
var examples = map[string]string{
	"fermata": "  fermata jobs create ping --every 30s --http https://example.com/health\n" +
		"  fermata jobs explain ping\n  fermata --address scheduler-0:7070,scheduler-1:7070 --namespace billing " +
		"jobs list",
	"fermata jobs":     "  fermata jobs list\n  fermata jobs get ping",
	"fermata jobs get": "  fermata jobs get ping\n  fermata jobs get ping -o yaml > ping.yaml",
	"fermata jobs delete": "  fermata jobs delete ping --if-exists\n  fermata jobs list --label team=old " +
		"-o name | xargs fermata jobs delete",
	"fermata jobs runs": "  fermata jobs runs report\n  fermata jobs runs report 1-1772366340000 -o " +
		"json | jq -r .output_text",
	"fermata jobs cancel":          "  fermata jobs cancel report\n  fermata jobs cancel report 1-1772366340000",
	"fermata jobs explain":         "  fermata jobs explain report\n  fermata jobs explain report -o json",
	"fermata jobs backfill-cancel": "  fermata jobs backfill-cancel report 20260101-1",
	"fermata late":                 "  fermata late --all-namespaces --limit 50",
	"fermata failing": "  fermata failing --all-namespaces\n  fermata failing -o name | xargs -n1 " +
		"fermata jobs explain",
	"fermata dead-letters": "  fermata dead-letters list\n  fermata dead-letters redrive report",
	"fermata namespaces":   "  fermata namespaces list",
	"fermata runs":         "  fermata runs list --failed --since 02:00 --until 03:00",
	"fermata queues":       "  fermata queues list --all-namespaces\n  fermata queues set mail --rate 100",
	"fermata queues list": "  fermata queues list --all-namespaces\n  fermata queues list --columns " +
		"queue,backlog,free-slots",
	"fermata queues get":    "  fermata queues get mail",
	"fermata targets":       "  fermata targets list --open",
	"fermata locks":         "  fermata locks list --held",
	"fermata queues resume": "  fermata queues resume mail",
	"fermata import":        "  fermata import -f jobs.jsonl\n  fermata import crontab /etc/crontab > jobs.yaml",
	"fermata import crontab": "  crontab -l | fermata import crontab > jobs.yaml\n  fermata import crontab " +
		"/etc/crontab /etc/cron.d/* > jobs.yaml",
	"fermata import cronjob":       "  kubectl get cronjobs -o yaml | fermata import cronjob > jobs.yaml",
	"fermata cluster":              "  fermata cluster nodes\n  fermata cluster workers",
	"fermata cluster nodes":        "  fermata cluster nodes\n  fermata cluster nodes --columns node,state,shards",
	"fermata cluster shards":       "  fermata cluster shards | head",
	"fermata cluster queues":       "  fermata cluster queues --all-namespaces",
	"fermata cluster workers":      "  fermata cluster workers --columns worker,queues,running",
	"fermata cluster check":        "  fermata cluster check\n  fermata cluster check --repair",
	"fermata cluster self-test":    "  fermata cluster self-test",
	"fermata webhooks":             "  fermata webhooks list",
	"fermata webhooks list":        "  fermata webhooks list",
	"fermata webhooks undelivered": "  fermata webhooks undelivered pager --limit 20",
	"fermata webhooks redeliver":   "  fermata webhooks redeliver pager",
	"fermata audit exports":        "  fermata audit exports",
	"fermata audit exports delete": "  fermata audit exports delete siem",
	"fermata payloads":             "  fermata payloads reseal --queue mail",
	"fermata payloads reseal":      "  fermata payloads reseal --queue mail --request-timeout 10m",
	"fermata logout":               "  fermata logout",
	"fermata whoami":               "  fermata whoami\n  fermata --token-file ci.token whoami",
	"fermata redis":                "  fermata redis acl",
	"fermata log-level":            "  fermata log-level debug --http-address 127.0.0.1:7072",
	"fermata worker":               "  fermata worker check -- ./check-program",
	"fermata version":              "  fermata version -o json",
}

// addExamples gives each command below cmd, and cmd itself, its example.
func addExamples(cmd *cobra.Command) {
	if cmd.Example == "" {
		cmd.Example = examples[cmd.CommandPath()]
	}
	for _, sub := range cmd.Commands() {
		addExamples(sub)
	}
}
