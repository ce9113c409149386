package archtest_test

// floor is a level of the house. A package imports only floors below its own.
type floor int

const (
	arithmetic floor = iota // 0: pure functions and their types
	model                   // 1: the nouns and the state machine
	parts                   // 2: engines and adapters, which know nothing of each other
	wiring                  // 3: what puts parts together, and the public packages
	commands                // 4: flags, environment, signals, exit codes
	beside                  // generated code: imported by name only
	support                 // test support: imported by tests only
)

// row places one package. Paths are relative to the module.
type row struct {
	path  string
	floor floor
	// foreign are the modules outside of the standard library that the package
	// may import, by path prefix. A nil list allows none, "*" any.
	foreign []string
	// also are packages of this module that it may import although they are not
	// on a lower floor.
	also []string
	// not are packages or modules that must not come in even indirectly.
	not []string
	// why gives the reason for whatever is particular about the row.
	why string
}

const (
	prometheus = "github.com/prometheus/client_golang/prometheus"
	goredis    = "github.com/redis/go-redis/v9"
	redislock  = "github.com/bsm/redislock"
	memberlist = "github.com/hashicorp/memberlist"
	grpc       = "google.golang.org/grpc"
	protobuf   = "google.golang.org/protobuf"
	status     = "google.golang.org/genproto/googleapis/rpc"
	xrate      = "golang.org/x/time/rate"
	jose       = "github.com/go-jose/go-jose/v4"
	otel       = "go.opentelemetry.io/otel"

	api     = "proto/fermata/v1"
	keda    = "proto/externalscaler"
	storage = "proto/fermata/storage/v1"

	annotations = "google.golang.org/genproto/googleapis/api"
	grpcGateway = "github.com/grpc-ecosystem/grpc-gateway/v2"
	translation = "proto/gateway/fermata/v1"
)

var table = []row{
	{path: "internal/core/authz", floor: arithmetic},
	{path: "internal/core/unixtime", floor: arithmetic},
	{path: "internal/lib/timespan", floor: arithmetic},
	{path: "internal/core/backoff", floor: arithmetic, also: []string{"internal/core/unixtime"}},
	{path: "internal/core/lease", floor: arithmetic, also: []string{"internal/core/unixtime"}},
	{path: "internal/lib/minheap", floor: arithmetic},
	{path: "internal/core/sharding", floor: arithmetic},
	{path: "internal/core/schedule", floor: arithmetic, foreign: []string{"github.com/netresearch/go-cron"}, also: []string{"internal/lib/timespan"},
		why: "the cron grammar is the library's, the arithmetic our own"},

	{path: "internal/redis/redisacl", floor: arithmetic},
	{path: "internal/core/autoscale", floor: arithmetic, also: []string{"internal/lib/timespan"}},
	{path: "internal/lib/spelling", floor: arithmetic},
	{path: "internal/lib/roundrobin", floor: arithmetic},
	{path: "internal/lib/ticks", floor: arithmetic},
	{path: "internal/lib/eventrate", floor: arithmetic},
	{path: "internal/lib/fairshare", floor: arithmetic},
	{path: "internal/redis/redisfunc", floor: arithmetic},
	{path: "internal/lib/visible", floor: arithmetic},
	{path: "internal/lib/protofield", floor: arithmetic, foreign: []string{protobuf}, why: "the varints are the library's"},

	{path: "internal/core/job", floor: model},
	{path: "internal/core/jobfilter", floor: model, foreign: []string{"go.einride.tech/aip/filtering", "google.golang.org/genproto/googleapis/api/expr"},
		also: []string{"internal/core/job"}, why: "the grammar of AIP-160 is the library's, the evaluation our own"},
	{path: "internal/core/forecast", floor: model, also: []string{"internal/core/job"},
		why: "it reads jobs, which know nothing of it"},
	{path: "internal/redis/codec", floor: model, foreign: []string{protobuf}, also: []string{"internal/core/job", storage}, not: []string{goredis},
		why: "what Redis stores, as bytes: pure, like the jobs that it encodes, and apart from all that talks to a server"},
	{path: "internal/core/slots", floor: model, also: []string{"internal/core/job"},
		why: "the contract between three engines, which must not import each other"},

	// Engines.
	{path: "internal/engine/ledger", floor: parts, foreign: []string{prometheus}},
	{path: "internal/engine/registry", floor: parts, foreign: []string{prometheus}, also: []string{"internal/lib/callturn", "internal/lib/fairturn"}},
	{path: "internal/engine/scheduler", floor: parts, foreign: []string{prometheus}},
	{path: "internal/engine/slotshare", floor: parts},
	{path: "internal/engine/dispatch", floor: parts, foreign: []string{prometheus}},
	{path: "internal/engine/admission", floor: parts, foreign: []string{prometheus}},
	{path: "internal/auth/payloadkeys", floor: parts, also: []string{"internal/lib/filewatch", "internal/lib/secretfile"}},
	{path: "internal/lib/secretfile", floor: parts},
	{path: "internal/lib/privatefile", floor: parts, foreign: []string{"golang.org/x/sys"}},
	{path: "internal/lib/filewatch", floor: parts, also: []string{"internal/lib/secretfile"}},
	{path: "internal/engine/queuestats", floor: parts, foreign: []string{prometheus}, also: []string{"internal/lib/callturn"}},
	{path: "internal/engine/forecast", floor: parts, foreign: []string{prometheus}},
	{path: "internal/engine/quota", floor: parts, foreign: []string{prometheus}},
	{path: "internal/engine/audittrail", floor: parts, foreign: []string{prometheus}, also: []string{"internal/lib/callturn", "internal/lib/fairshare", "internal/lib/filewatch", "internal/lib/secretfile"}},
	{path: "internal/engine/events", floor: parts, foreign: []string{prometheus}},
	{path: "internal/engine/webhook", floor: parts, foreign: []string{prometheus}, also: []string{"internal/lib/egress", "internal/lib/filewatch", "internal/lib/mask", "internal/lib/retryafter", "internal/lib/secretfile", "internal/lib/urlmask", "internal/lib/yamldoc"}},

	// Adapters: one foreign library each, beside the metrics that all have.
	{path: "internal/redis/rediserr", floor: parts, foreign: []string{goredis}, also: []string{"internal/lib/coalesce"}},
	{path: "internal/redis/conn", floor: parts, foreign: []string{prometheus, goredis}, also: []string{"internal/lib/rawio", "internal/redis/rediserr"}},
	{path: "internal/redis/runner", floor: parts, foreign: []string{prometheus, goredis},
		also: []string{"internal/lib/coalesce", "internal/redis/conn", "internal/redis/rediserr"}},
	{path: "internal/redis/limits", floor: parts, also: []string{"internal/redis/rediserr", "internal/redis/runner"}},
	{path: "internal/redis/redisstore", floor: parts, foreign: []string{prometheus, goredis},
		also: []string{"internal/lib/coalesce", "internal/redis/conn", "internal/redis/rediserr", "internal/redis/limits", "internal/redis/runner"}},
	{path: "internal/redis/fsck", floor: parts, also: []string{"internal/redis/redisstore", "internal/redis/runner"}},
	{path: "internal/redis/shardlock", floor: parts, foreign: []string{prometheus, redislock, goredis},
		why: "redislock is driven through a go-redis client"},
	{path: "internal/cluster/membership", floor: parts, foreign: []string{prometheus, memberlist, "github.com/hashicorp/go-msgpack/v2", "github.com/hashicorp/go-sockaddr"}, also: []string{"internal/lib/filewatch", "internal/lib/hostgroup", "internal/lib/librarylog", "internal/lib/secretfile"},
		why: "its transport reads memberlist's messages, and chooses addresses as memberlist does"},
	{path: "internal/api/convert", floor: parts, foreign: []string{protobuf}, also: []string{api, keda},
		why: "the server and the command line write policies alike"},
	{path: "internal/api/apierror", floor: parts, foreign: []string{grpc, protobuf, status}, also: []string{"internal/api/convert"}},
	{path: "internal/api/guard", floor: parts, foreign: []string{prometheus, grpc, protobuf, status, xrate}, also: []string{api, keda, "internal/api/convert", "internal/api/apierror", "internal/lib/grpccodec", "internal/lib/hostgroup", "internal/lib/rawio", "internal/lib/memorybudget", "internal/lib/callturn", "internal/lib/fairturn"}},
	{path: "internal/api/wirefield", floor: arithmetic},
	{path: "internal/api/workerstream", floor: parts, foreign: []string{grpc, protobuf, status}, also: []string{api, "internal/api/convert", "internal/api/apierror", "internal/api/guard"}},
	{path: "internal/api/rpc", floor: parts, foreign: []string{prometheus, grpc, protobuf, status}, also: []string{api, keda, "internal/api/convert", "internal/api/apierror", "internal/api/guard", "internal/api/workerstream", "internal/lib/grpccodec"},
		why: "it serves two interfaces: ours, and the one that KEDA calls"},
	{path: "internal/api/gateway", floor: parts, foreign: []string{prometheus, grpc, protobuf, status, grpcGateway}, also: []string{api, translation, "proto/gateway", "internal/lib/grpccodec", "internal/lib/hostgroup", "internal/lib/httpbound", "internal/lib/memorybudget", "internal/api/apierror", "internal/api/convert"},
		why: "it is a client of the nodes: nothing of a server of ours is in it"},
	{path: "internal/auth/authn", floor: parts, foreign: []string{jose, "go.yaml.in/yaml/v3"}, also: []string{"internal/lib/filewatch", "internal/lib/secretfile", "internal/lib/yamldoc"}},
	{path: "internal/cluster/reachability", floor: parts, foreign: []string{prometheus, goredis},
		why: "it pings Redis, and measures the calls of the node's clients"},
	{path: "internal/cluster/peer", floor: parts, foreign: []string{prometheus, grpc, protobuf, status}, also: []string{api, "internal/lib/rawio"}},
	{path: "internal/auth/bearer", floor: parts, foreign: []string{grpc}, also: []string{"internal/lib/filewatch"}},
	{path: "internal/auth/signin", floor: parts, foreign: []string{"github.com/coreos/go-oidc/v3", "golang.org/x/oauth2"}, also: []string{"internal/lib/privatefile", "internal/lib/secretfile"},
		why: "two libraries for the two protocols of one sign-in"},
	{path: "internal/lib/dialhint", floor: parts},
	{path: "internal/lib/precisetimer", floor: parts, foreign: []string{"golang.org/x/sys"}, also: []string{"internal/lib/rawio"}},
	{path: "internal/lib/rawio", floor: parts},
	{path: "internal/observe/telemetry", floor: parts, foreign: []string{prometheus}, also: []string{"internal/lib/httpbound"}},
	{path: "internal/observe/tracing", floor: parts, foreign: []string{prometheus, otel, grpc}},
	{path: "internal/observe/logs", floor: parts},
	{path: "internal/lib/gctune", floor: parts},
	{path: "internal/lib/memorybudget", floor: parts},
	{path: "internal/lib/callturn", floor: parts},
	{path: "internal/lib/fairturn", floor: parts},
	{path: "internal/lib/librarylog", floor: parts},
	{path: "internal/lib/hostgroup", floor: parts},
	{path: "internal/lib/httpbound", floor: parts, also: []string{"internal/lib/hostgroup", "internal/lib/librarylog", "internal/lib/memorybudget"}},
	{path: "internal/cli/tui", floor: parts, foreign: []string{"golang.org/x/term"}},
	{path: "internal/lib/egress", floor: parts, foreign: []string{"code.dny.dev/ssrf"}, why: "the list of networks is generated from IANA's registries"},
	{path: "internal/lib/mask", floor: parts},
	{path: "internal/lib/urlmask", floor: parts},
	{path: "internal/engine/defaults", floor: parts, foreign: []string{"go.yaml.in/yaml/v3"}, also: []string{"internal/lib/secretfile", "internal/lib/yamldoc"}},
	{path: "internal/core/payload", floor: parts},
	{path: "internal/lib/retryafter", floor: parts},
	{path: "internal/lib/yamldoc", floor: parts, foreign: []string{"go.yaml.in/yaml/v3"},
		also: []string{"internal/lib/spelling"}},
	{path: "internal/lib/coalesce", floor: parts},
	{path: "internal/lib/grpccodec", floor: parts, foreign: []string{grpc, protobuf}},
	{path: "internal/auth/tlsfiles", floor: parts, foreign: []string{prometheus, grpc}, also: []string{"internal/lib/secretfile"},
		why: "gRPC asks credentials, not configurations, at each handshake"},

	{path: "internal/node", floor: wiring, foreign: []string{"*"}, why: "it builds every part, with the client that the part needs"},
	{path: "internal/cli/playground", floor: wiring, foreign: []string{"*"}, also: []string{api, "internal/node", "client", "worker", "worker/httphandler", "internal/cli/httpapi", "internal/lib/httpbound"},
		why: "a whole cluster in one process: what the commands start in several"},
	{path: "internal/cli/httpapi", floor: wiring, foreign: []string{grpc}, also: []string{"client"},
		why: "its connections to the nodes are those of the public client"},
	{path: "internal/cli/config", floor: wiring, foreign: []string{"github.com/spf13", "go.yaml.in/yaml/v3"}},
	{path: "internal/cli/zones", floor: wiring},
	{path: "internal/cli/suggest", floor: wiring, foreign: []string{"github.com/spf13"}},
	{path: "internal/cli/redisflags", floor: wiring, foreign: []string{"github.com/spf13"}, also: []string{"internal/cli/config"}},
	{path: "internal/cli/manifest", floor: wiring, foreign: []string{protobuf, "go.yaml.in/yaml/v3"}, also: []string{api, "client"},
		why: "files have the names of the API, and payloads of ready-made handlers are the client's"},
	{path: "internal/cli/workercheck", floor: wiring, foreign: []string{grpc, protobuf}, also: []string{api},
		not: []string{goredis, "internal/node", "worker"}, why: "it knows the protocol and no implementation of it"},
	{path: "internal/cli/importer", floor: wiring, foreign: []string{"go.yaml.in/yaml/v3"}},
	{path: "client", floor: wiring, foreign: []string{grpc, protobuf, status, otel}, also: []string{api},
		not: []string{goredis, redislock, memberlist, "internal/node", grpcGateway}, why: "users link it: it must not bring a server along"},
	{path: "worker", floor: wiring, foreign: []string{grpc, protobuf, status, prometheus, otel}, also: []string{api},
		not: []string{goredis, redislock, memberlist, "internal/node", grpcGateway}, why: "users link it: it must not bring a server along"},

	{path: "worker/secrets", floor: wiring},
	{path: "worker/exechandler/internal/launch", floor: wiring, foreign: []string{"golang.org/x/sys"},
		why: "it starts before everything else in the process, so that it imports next to nothing"},
	{path: "worker/httphandler", floor: wiring, foreign: []string{otel}, also: []string{"worker", "worker/secrets"}},
	{path: "worker/exechandler", floor: wiring, foreign: []string{"golang.org/x/sys", otel}, also: []string{"worker", "worker/secrets", "worker/exechandler/internal/launch"},
		why: "process groups are the operating system's"},

	{path: "cmd/scheduler", floor: commands, foreign: []string{"*"}, also: []string{api, "internal/lib/gctune", "internal/observe/logs", "internal/lib/secretfile", "internal/observe/tracing"}},
	{path: "cmd/worker", floor: commands, foreign: []string{"*"}, also: []string{api, "internal/observe/telemetry", "internal/observe/tracing", "internal/observe/logs", "internal/lib/gctune", "internal/lib/secretfile", "internal/auth/tlsfiles"},
		not: []string{goredis, redislock, memberlist, "internal/node"},
		why: "a worker reaches nodes and nothing else; its logger and metrics endpoint are those of the nodes"},
	{path: "cmd/gateway", floor: commands, foreign: []string{"*"},
		also: []string{"internal/api/gateway", "internal/auth/signin", "internal/auth/tlsfiles", "internal/auth/bearer", "internal/lib/gctune", "internal/lib/secretfile", "internal/observe/logs", "internal/observe/telemetry"},
		not:  []string{goredis, redislock, memberlist, "internal/node"},
		why:  "it reaches nodes and nothing else: a process that parses HTTP has no access to Redis and no gossip key"},
	{path: "cmd/fermata", floor: commands, foreign: []string{"*"},
		also: []string{api, "internal/api/convert", "internal/api/gateway", "internal/auth/bearer", "internal/auth/tlsfiles", "internal/cli/tui", "internal/observe/tracing", "internal/observe/logs", "internal/lib/dialhint", "internal/redis/conn", "internal/redis/redisstore", "internal/core/schedule", "internal/lib/secretfile", "internal/auth/signin", "internal/redis/shardlock"},
		why:  "it loads into Redis the functions that the store and the locks call, and reads local times as schedules do"},

	{path: "examples/worker", floor: commands},
	{path: "examples/check", floor: commands},
	{path: "examples/ruby", floor: commands},
	{path: "sdk/python", floor: commands},
	{path: "deploy/grafana/build", floor: commands},

	{path: keda, floor: beside, foreign: []string{grpc, protobuf}},
	{path: api, floor: beside, foreign: []string{grpc, protobuf, status, annotations}, not: []string{grpcGateway}},
	{path: translation, floor: beside, foreign: []string{grpc, protobuf, grpcGateway}, also: []string{api}},
	{path: "proto/gateway", floor: beside},
	{path: "console", floor: arithmetic, why: "files that are served: it imports nothing"},
	{path: "console/apigen", floor: commands, foreign: []string{protobuf},
		also: []string{"internal/api/guard", "internal/core/authz", "internal/core/jobfilter", "proto/gateway", api},
		why:  "it writes the API client of the console from what the nodes check by, and the kinds of a job's fields from its message"},
	{path: "proto/openapi", floor: beside, why: "it merges the OpenAPI documents of the services"},
	{path: storage, floor: beside, foreign: []string{protobuf}},
	{path: "proto/protodoc", floor: beside, foreign: []string{protobuf, annotations}, why: "a plugin of protoc, which writes pages of docs/reference"},

	{path: "internal/test/tlstest", floor: support},
	{path: "internal/test/keytest", floor: support},
	{path: "internal/test/gossiptest", floor: support},
	{path: "internal/test/issuertest", floor: support, foreign: []string{jose}},
	{path: "internal/test/flagtest", floor: support, foreign: []string{"github.com/spf13"}},
	{path: "internal/test/refdoc", floor: support, foreign: []string{"github.com/spf13"}},
	{path: "internal/test/paralleltest", floor: support},
	{path: "internal/test/stalltest", floor: support},
	{path: "internal/test/nodetest", floor: support, foreign: []string{"*"}, why: "a node in the process of an example"},
	{path: "internal/test/redistest", floor: support, foreign: []string{"*"}},
	{path: "internal/test/faultproxy", floor: support, foreign: []string{"*"}},
	{path: "internal/test/storetest", floor: support, foreign: []string{"*"}},
	{path: "internal/test/acceptance", floor: support, foreign: []string{"*"}},
	{path: "internal/test/observability", floor: support, foreign: []string{"*"}},
	{path: "internal/test/simnet", floor: support, foreign: []string{memberlist}},
	{path: "internal/test/sim", floor: support, foreign: []string{"*"}},
	{path: "internal/test/faultyworker", floor: support, foreign: []string{grpc, protobuf}, also: []string{api},
		why: "a worker on the generated stub"},
	{path: "internal/test/sessiontest", floor: support, foreign: []string{grpc, protobuf}, also: []string{api},
		why: "what a worker says on a stream"},
	{path: "internal/test/historycheck", floor: support},
	{path: "deploy/kubelab/witness", floor: support, foreign: []string{protobuf},
		why: "a pod of the trial of the chart on a real cluster: it judges by internal/test/historycheck"},
	{path: "internal/test/archtest", floor: support},
	{path: "internal/test/docstest", floor: support},
}

// pureBans are what the two lowest floors must not import: time, chance and the
// world come to them as arguments, so that every decision can be replayed.
var pureBans = map[string]string{
	"context":     "nothing there waits",
	"log":         "deciding is not reporting",
	"os":          "no IO",
	"io/ioutil":   "no IO",
	"net":         "no IO",
	"syscall":     "no IO",
	"sync":        "no shared state",
	"math/rand":   "chance is an argument",
	"crypto/rand": "chance is an argument",
}

// pureCalls are functions of package time that they must not name.
var pureCalls = map[string]string{
	"Now": "the time is an argument", "Since": "the time is an argument", "Until": "the time is an argument",
	"Sleep": "nothing there waits", "After": "nothing there waits", "AfterFunc": "nothing there waits",
	"Tick": "nothing there waits", "NewTimer": "nothing there waits", "NewTicker": "nothing there waits",
}
