package authn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

// accessFile is the access file as written.
type accessFile struct {
	Tokens       []tokenEntry  `yaml:"tokens"`
	Certificates []string      `yaml:"certificates"`
	JWT          []issuerEntry `yaml:"jwt"`
	Rules        []ruleEntry   `yaml:"rules"`
	Limits       limitsEntry   `yaml:"limits"`
	// Namespaces set limits of namespaces, for all callers together.
	Namespaces []namespaceEntry `yaml:"namespaces"`
}

type namespaceEntry struct {
	Names    []string   `yaml:"names"`
	Jobs     *int       `yaml:"jobs"`
	JobBytes *byteCount `yaml:"job-bytes"`
}

type tokenEntry struct {
	Name      string     `yaml:"name"`
	SHA256    string     `yaml:"sha256"`
	TokenFile string     `yaml:"token-file"`
	Expires   expiryTime `yaml:"expires"`
}

// expiryTime is a point in time whose errors name their line.
type expiryTime struct{ time.Time }

// UnmarshalYAML reads a date or a time.
func (e *expiryTime) UnmarshalYAML(n *yaml.Node) error {
	if err := n.Decode(&e.Time); err != nil {
		return fmt.Errorf("line %d: expires: %.40q is not a time such as 2027-01-31T00:00:00Z", n.Line, n.Value)
	}
	return nil
}

type issuerEntry struct {
	Name        string            `yaml:"name"`
	Issuer      string            `yaml:"issuer"`
	Audience    string            `yaml:"audience"`
	JWKS        string            `yaml:"jwks"`
	JWKSCA      string            `yaml:"jwks-ca"`
	JWKSToken   string            `yaml:"jwks-token-file"`
	Refetch     yamldoc.Duration  `yaml:"refetch"`
	Leeway      *yamldoc.Duration `yaml:"leeway"`
	Algorithms  []string          `yaml:"algorithms"`
	NameClaim   string            `yaml:"name-claim"`
	GroupsClaim string            `yaml:"groups-claim"`
}

type ruleEntry struct {
	Subjects   []string    `yaml:"subjects"`
	Role       authz.Role  `yaml:"role"`
	Namespaces []string    `yaml:"namespaces"`
	Queues     []string    `yaml:"queues"`
	Limits     limitsEntry `yaml:"limits"`
}

type limitsEntry struct {
	Rate        *float64 `yaml:"rate"` // nil: not set
	Burst       int      `yaml:"burst"`
	Calls       *int     `yaml:"calls"`
	Connections *int     `yaml:"connections"`
}

func (l limitsEntry) ruleLimits() authz.Limits {
	out := authz.Limits{
		Burst: l.Burst, MaxOpenCalls: limitOrUnlimited(l.Calls), Connections: limitOrUnlimited(l.Connections),
	}
	if l.Rate != nil {
		out.Rate = *l.Rate
	}
	if out.Rate > 0 && out.Burst == 0 {
		out.Burst = max(1, int(out.Rate))
	}
	return out
}

// limitOrUnlimited returns a limit of the file. 0 in the file takes the default of the role away.
func limitOrUnlimited(given *int) int {
	switch {
	case given == nil:
		return 0
	case *given == 0:
		return authz.Unlimited
	}
	return *given
}

// defaultLimits are the limits of callers to whom no rule gives any. If the file sets none, there is a rate that
// ordinary clients do not reach; 0: no limit.
func (l limitsEntry) defaultLimits() authz.Limits {
	if l.Rate == nil {
		l.Rate = new(float64(authz.DefaultRate))
	}
	return l.ruleLimits()
}

// maxFileSize bounds the access file and every file that it names.
const maxFileSize = 1 << 20

// decodeFile decodes a file strictly: unknown keys are errors.
func decodeFile(text []byte) (accessFile, error) {
	var f accessFile
	err := yamldoc.Unmarshal(text, &f)
	if yamldoc.Ended(err) {
		return f, errors.New("it is empty")
	}
	return f, err
}

// buildPolicy validates the rules, and that the subjects that they name exactly can be authenticated.
func (f accessFile) buildPolicy() (*authz.Policy, error) {
	var faults []error
	rules := make([]authz.Rule, 0, len(f.Rules))
	for i, r := range f.Rules {
		for _, s := range r.Subjects {
			if !f.canAuthenticate(s) {
				faults = append(faults, fmt.Errorf("rules[%d].subjects: %q cannot be proved by anything in this file",
					i, s))
			}
		}
		rules = append(rules, authz.Rule{
			Subjects: r.Subjects, Role: r.Role, Namespaces: r.Namespaces, Queues: r.Queues,
			Limits: r.Limits.ruleLimits(),
		})
	}
	policy, err := authz.NewPolicy(rules, f.Limits.defaultLimits())
	if err == nil {
		policy = policy.WithRoleLimits()
		spaces := make([]authz.NamespaceLimits, len(f.Namespaces))
		for i, e := range f.Namespaces {
			spaces[i] = authz.NamespaceLimits{Names: e.Names, Jobs: e.Jobs, JobBytes: (*int)(e.JobBytes)}
		}
		policy, err = policy.WithNamespaces(spaces)
	}
	return policy, errors.Join(append(faults, err)...)
}

// canAuthenticate reports whether some credential could have a subject.
func (f accessFile) canAuthenticate(subject string) bool {
	kind, name, _ := strings.Cut(subject, ":")
	switch kind {
	case authz.KindToken:
		return slices.ContainsFunc(f.Tokens, func(t tokenEntry) bool { return authz.Match(name, t.Name) })
	case authz.KindURI, authz.KindDNS, authz.KindCommonName:
		return slices.ContainsFunc(f.Certificates, func(p string) bool { return patternsOverlap(p, subject) })
	case authz.KindJWT, authz.KindGroup:
		return slices.ContainsFunc(f.JWT, func(e issuerEntry) bool { return patternsOverlap(e.Name+":*", name) })
	}
	return true // "*", or a fault that NewPolicy reports
}

// patternsOverlap reports whether some name matches both patterns.
func patternsOverlap(a, b string) bool {
	prefixA, openA := strings.CutSuffix(a, "*")
	prefixB, openB := strings.CutSuffix(b, "*")
	return openB && strings.HasPrefix(prefixA, prefixB) || openA && strings.HasPrefix(prefixB, prefixA) || a == b
}
