package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// dashboards are all that there are.
var dashboards = []func() dashboard{overview, backoff, queues, cluster, redis, goRuntime}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: build DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

// write makes one file for each dashboard, named after its uid.
func write(dir string) error {
	for _, make := range dashboards {
		d := make()
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return fmt.Errorf("%s: %w", d.UID, err)
		}
		if err := os.WriteFile(filepath.Join(dir, d.UID+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}
