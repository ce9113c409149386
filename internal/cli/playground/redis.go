package playground

import (
	"fmt"
	"os/exec"

	"github.com/alicebob/miniredis/v2"
)

// redisServer is the Redis of this run, embedded or a process.
type redisServer struct {
	url  string
	kind string // for people
	stop func()
}

// startRedis starts what choice names. dir is for the files of a process.
func startRedis(choice, dir string) (redisServer, error) {
	switch choice {
	case RedisEmbedded:
		return startEmbedded()
	case RedisAuto:
		path, err := exec.LookPath("redis-server")
		if err != nil {
			return startEmbedded()
		}
		return startProcess(path, dir)
	}
	return startProcess(choice, dir)
}

// startEmbedded runs miniredis with TTLs that pass with time, as those of a real
// server do; without that a shard lock would never expire.
func startEmbedded() (redisServer, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return redisServer{}, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return redisServer{url: "redis://" + m.Addr(), kind: "embedded, in memory", stop: m.Close}, nil
}
