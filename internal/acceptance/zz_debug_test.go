package acceptance

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redistest"
)

func TestZZDebug(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF("everysec"))
	c := newCluster(t, server.URL(), "--log-level", "debug")
	n := c.start("a")
	c.settle()
	j := newJob(behaviour{Sleep: time.Minute})
	j.Schedule = once(time.Now())
	n.create("poison", j)
	w := c.startWorker("w0", 1, n.grpc)
	c.saw(15*time.Second, "", starts("poison", "w0"))
	w.kill()
	c.startWorker("w1", 1, n.grpc)
	for i := 0; i < 8; i++ {
		time.Sleep(time.Second)
		keys, _ := server.Client().Keys(call(t), "*").Result(); fmt.Println(keys)
		for _, k := range keys {
			z, _ := server.Client().ZRangeWithScores(call(t), k, 0, -1).Result()
			for _, m := range z {
				s := m.Score
				fmt.Println(k, m.Member, int64(s)>>42, (int64(s)&(1<<42-1))-time.Now().UnixMilli())
			}
		}
		res, _ := http.Get("http://" + n.http + "/metrics")
		b, _ := io.ReadAll(res.Body)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "fermata_lease") || strings.HasPrefix(line, "fermata_ledger") {
				fmt.Print(line)
			}
		}
	}
	t.Fail()
}
