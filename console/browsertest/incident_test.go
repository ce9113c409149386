package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// TestOverviewOfAnIncident: from the overview alone it can be read that a target is down, that a queue has no worker,
// which job is deep in its backoff, and that a node was lost. The pictures are for the documentation.
func TestOverviewOfAnIncident(t *testing.T) {
	c := startProcesses(t)
	shop := c.inNamespace("shop")
	shop.createJob("currency-rates", &client.Job{Handler: "ok", Schedule: client.Every(2 * time.Second)})
	shop.createJob("search-index", &client.Job{Handler: "ok", Schedule: client.Every(500 * time.Millisecond)})
	shop.createJob("newsletter", &client.Job{Handler: "ok", Schedule: client.Cron("0 9 * * MON", "Europe/Berlin")})
	shop.createJob("stock-import", &client.Job{
		Handler: "import", Schedule: client.Every(100 * time.Millisecond),
		BackoffPolicy: &client.BackoffPolicy{Multiplier: 4, Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}},
	})
	for i := range 12 {
		shop.createDueJob(fmt.Sprintf("capture-payments-%02d", i+1), &client.Job{
			Handler: "pay", Schedule: client.Every(10 * time.Second), Target: "payments.example.com",
		})
	}
	for _, id := range []string{"monthly-report", "tax-report", "stock-report"} {
		shop.createDueJob(id, &client.Job{Handler: "ok", Queue: "reports", Schedule: client.Every(time.Hour)})
	}
	shop.startShopWorker()
	p := shop.openTab("#/?namespace=shop")
	p.waitText("main", "node-3")
	c.nodes[2].kill()

	p.waitText(".sentence", "on queue reports have waited")
	p.waitText(".sentence", "because no worker serves it")
	p.waitText(".sentence", "Target payments.example.com is down")
	p.waitText(".sentence", "Node node-3 has disappeared without leaving; other nodes have its shards")
	p.waitText("h1", "queue reports and target payments.example.com")
	p.waitText("main table", "lost")
	p.wait("the job that is deep in its backoff", `[...document.querySelectorAll("main tbody tr")].some(r =>
		r.innerText.includes("stock-import") && r.innerText.includes("the supplier's file is empty") &&
		[...r.cells].some(c => Number(c.innerText) >= 4))`)
	p.checkAccessibility("an incident")
	p.screenshot("incident-light")
	p.setTheme("dark")
	p.checkAccessibility("an incident, dark")
	p.screenshot("incident-dark")
	p.setTheme("light")
	p.goTo("#/cluster?namespace=shop")
	p.waitText(".sentence", "1 node disappeared without leaving: node-3")
	p.checkAccessibility("cluster with a lost node")
	p.screenshot("cluster-lost-node")
}

// inNamespace is the cluster with a client of another namespace.
func (c *processCluster) inNamespace(name string) *cluster {
	c.t.Helper()
	return &cluster{t: c.t, url: c.url, addresses: c.addresses, client: c.client.InNamespace(name)}
}

// createDueJob registers a job that is due at once.
func (c *cluster) createDueJob(id string, j *client.Job) {
	c.t.Helper()
	c.createJob(id, j)
	if _, _, err := c.client.RunJob(c.t.Context(), id, client.RunOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// startShopWorker runs the handlers of the incident.
func (c *cluster) startShopWorker() {
	c.t.Helper()
	w, err := worker.New(worker.Options{
		Addresses: c.addresses, Namespace: "shop", ID: "shop-worker-1", Slots: 16, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	w.Handle("ok", func(context.Context, *worker.Task) error { return nil })
	w.Handle("import", func(context.Context, *worker.Task) error { return errors.New("the supplier's file is empty") })
	w.Handle("pay", func(context.Context, *worker.Task) error {
		return errors.New("POST https://payments.example.com/capture: 503 Service Unavailable")
	})
	runWorker(c.t, w)
}
