package client

import (
	"context"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestTokensNeedTLSBeyondThisHost(t *testing.T) {
	o := Options{Token: func(context.Context) (string, error) { return "t", nil }}
	for addresses, good := range map[[2]string]bool{
		{"127.0.0.1:1", "localhost:2"}: true, {"127.0.0.1:1", "node:2"}: false, {"10.0.0.1:1", "10.0.0.2:1"}: false,
	} {
		c, err := Dial(addresses[:], o)
		if (err == nil) != good {
			t.Errorf("%v: %v", addresses, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

func TestRequestedDelaysAreWaited(t *testing.T) {
	bare := status.New(codes.ResourceExhausted, "full")
	named, err := bare.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if _, again := delayAfter(bare.Err(), 1); again {
		t.Error("repeated at once what is at its limit")
	}
	if wait, again := delayAfter(named.Err(), 1); !again || wait < time.Second {
		t.Errorf("%v %v", wait, again)
	}
}
