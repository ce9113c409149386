package dialhint_test

import (
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fermata-io/fermata/internal/lib/dialhint"
)

// nowhere is no name at all, which every resolver knows without asking anybody.
const nowhere = "no..host:7070"

// asked is what gRPC says of a call to an address with one of its balancers.
func asked(t *testing.T, address, balancer string) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"`+balancer+`":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	return err
}

func TestExplain(t *testing.T) {
	for _, balancer := range []string{"round_robin", "pick_first"} {
		err := asked(t, nowhere, balancer)
		var reason *net.DNSError
		if got := dialhint.Explain(t.Context(), nowhere, err); !errors.As(got, &reason) || !reason.IsNotFound {
			t.Errorf("%s: %v is explained by %v", balancer, err, got)
		}
	}
}

func TestWhatSaysWhyStays(t *testing.T) {
	refused := asked(t, "127.0.0.1:1", "pick_first")
	for address, err := range map[string]error{
		nowhere:             refused,
		"127.0.0.1:7070":    errors.New("name resolver error: produced zero addresses"), // there is one now
		"dns:///" + nowhere: errors.New("no children to pick from"),                     // a target, not an address
	} {
		if got := dialhint.Explain(t.Context(), address, err); got != err {
			t.Errorf("%s: %v became %v", address, err, got)
		}
	}
}
