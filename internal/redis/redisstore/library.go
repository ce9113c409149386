package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/redisfunc"
)

// LoadedLibraries is what a call of [LoadLibraries] has changed on a server.
type LoadedLibraries struct {
	Server          string // address
	Loaded, Deleted []string
}

// LoadLibraries brings libraries to every primary that lacks them, from where replicas
// have them too. With prune it deletes those of other versions, which no node may call
// any more. It may be repeated; an error comes with what was done before it.
func LoadLibraries(ctx context.Context, client redis.UniversalClient, libraries []redisfunc.Library,
	prune bool) ([]LoadedLibraries, error) {
	switch c := client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		var all []LoadedLibraries
		err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			done, err := loadLibraries(ctx, master, libraries, prune)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, done)
			return err
		})
		slices.SortFunc(all, func(a, b LoadedLibraries) int { return strings.Compare(a.Server, b.Server) })
		return all, err
	case *redis.Client:
		done, err := loadLibraries(ctx, c, libraries, prune)
		return []LoadedLibraries{done}, err
	}
	return nil, fmt.Errorf("functions cannot be loaded by a client of type %T", client)
}

func loadLibraries(ctx context.Context, c *redis.Client, libraries []redisfunc.Library,
	prune bool) (LoadedLibraries, error) {
	done := LoadedLibraries{Server: c.Options().Addr}
	there, err := c.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: redisfunc.Prefix + "*"}).Result()
	if err != nil {
		return done, fmt.Errorf("function list on %s: %w", done.Server, err)
	}
	has := map[string]bool{}
	for _, l := range there {
		has[l.Name] = true
	}
	for _, l := range libraries {
		if has[l.Name] {
			delete(has, l.Name)
			continue
		}
		if err := c.FunctionLoad(ctx, l.Code).Err(); err != nil {
			return done, fmt.Errorf("function load on %s: %w", done.Server, err)
		}
		done.Loaded = append(done.Loaded, l.Name)
	}
	for _, l := range there {
		if !prune || !has[l.Name] {
			continue
		}
		if err := c.FunctionDelete(ctx, l.Name).Err(); err != nil {
			return done, fmt.Errorf("function delete on %s: %w", done.Server, err)
		}
		done.Deleted = append(done.Deleted, l.Name)
	}
	return done, nil
}
