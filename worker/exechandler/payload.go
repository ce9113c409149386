package exechandler

import (
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/worker/secrets"
)

// expandSecrets replaces references by secrets. Arguments have none, because every user of the machine can read
// them.
func expandSecrets(p *payload.Exec, use *secrets.Resolver) error {
	var err error
	p.Stdin, err = use.Expand(p.Stdin)
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	for name, value := range p.Env {
		full, err := use.Expand(value)
		if err != nil {
			return fmt.Errorf("env: %s: %w", name, err)
		}
		if strings.ContainsRune(full, 0) {
			return fmt.Errorf("env: %s: the secret holds a NUL byte", name)
		}
		p.Env[name] = full
	}
	return nil
}
