package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/proto/externalscaler"
)

// scaledObject is what KEDA reads of one, as the Helm chart renders it.
type scaledObject struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Triggers []trigger
		// Of a TriggerAuthentication.
		Secrets []struct{ Parameter, Name, Key string } `yaml:"secretTargetRef"`
	}
}

type trigger struct {
	Type           string
	MetricType     string `yaml:"metricType"`
	Metadata       map[string]string
	Authentication struct{ Name string } `yaml:"authenticationRef"`
}

// chartObjects are KEDA's objects in the chart's golden render for production, by kind and name.
func chartObjects(t *testing.T) map[string]scaledObject {
	t.Helper()
	text, err := os.ReadFile("../../deploy/helm/test/testdata/production.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]scaledObject{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "apiVersion: keda.sh/") {
			continue
		}
		var o scaledObject
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		all[o.Kind+" "+o.Metadata.Name] = o
	}
	return all
}

// operator does with one trigger what KEDA's does with it (version 2.20, pkg/scalers/external_scaler.go): how it
// connects, what it calls in which order, what it makes of the answers, and when it tries again.
type operator struct {
	t      *testing.T
	index  int
	client externalscaler.ExternalScalerClient
	conn   *grpc.ClientConn
	ref    *externalscaler.ScaledObjectRef
}

// newOperator resolves what the trigger's authentication names in a Secret, and connects. KEDA has the name of the
// service looked up; here dial stands for that.
func newOperator(t *testing.T, o scaledObject, index int, authentication scaledObject, secret map[string]string,
	dial func(context.Context, string) (net.Conn, error)) *operator {
	t.Helper()
	given := map[string]string{}
	for _, s := range authentication.Spec.Secrets {
		given[s.Parameter] = secret[s.Key]
	}
	metadata := o.Spec.Triggers[index].Metadata
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: metadata["unsafeSsl"] == "true"}
	if given["tlsClientCert"] != "" && given["tlsClientKey"] != "" {
		pair, err := tls.X509KeyPair([]byte(given["tlsClientCert"]), []byte(given["tlsClientKey"]))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if given["caCert"] != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(given["caCert"])) {
			t.Fatal("caCert is no certificate")
		}
	}
	secure := insecure.NewCredentials()
	if metadata["enableTLS"] == "true" || len(config.Certificates) > 0 || given["caCert"] != "" {
		secure = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///"+metadata["scalerAddress"], grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &operator{
		t: t, index: index, client: externalscaler.NewExternalScalerClient(conn), conn: conn,
		ref: &externalscaler.ScaledObjectRef{Name: o.Metadata.Name, Namespace: o.Metadata.Namespace,
			ScalerMetadata: metadata},
	}
}

// specs are the metrics of the autoscaler that KEDA makes, with targets in thousandths.
func (o *operator) specs(ctx context.Context) (map[string]int64, error) {
	response, err := o.client.GetMetricSpec(ctx, o.ref)
	targets := map[string]int64{}
	for _, s := range response.GetMetricSpecs() {
		target := s.GetTargetSize() * 1000
		if s.GetTargetSizeFloat() > 0 {
			target = int64(s.GetTargetSizeFloat() * 1000)
		}
		targets[fmt.Sprintf("s%d-%s", o.index, s.GetMetricName())] = target
	}
	return targets, err
}

// ask is what KEDA does at each polling interval, for each metric: what it is now, in thousandths, and whether pods are
// needed.
func (o *operator) ask(ctx context.Context, metric string) (value int64, active bool, err error) {
	plain, ok := strings.CutPrefix(metric, fmt.Sprintf("s%d-", o.index))
	if !ok {
		o.t.Fatalf("%s is not of trigger %d", metric, o.index)
	}
	response, err := o.client.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: o.ref,
		MetricName: plain})
	if err != nil {
		return 0, false, err
	}
	for _, v := range response.GetMetricValues() {
		value = v.GetMetricValue() * 1000
		if v.GetMetricValueFloat() > 0 {
			value = int64(v.GetMetricValueFloat() * 1000)
		}
	}
	answer, err := o.client.IsActive(ctx, o.ref)
	return value, answer.GetResult(), err
}

// watch opens the stream again and again: two seconds after it has ended in order, later and later after failures.
func (o *operator) watch(ctx context.Context, activity chan<- bool, ended chan<- error) {
	pause := 2 * time.Second
	for ctx.Err() == nil {
		err := o.stream(ctx, activity)
		if errors.Is(err, io.EOF) {
			pause = 2 * time.Second
		}
		ended <- err
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, time.Minute)
		}
	}
}

func (o *operator) stream(ctx context.Context, activity chan<- bool) error {
	stream, err := o.client.StreamIsActive(ctx, o.ref)
	for err == nil {
		var m *externalscaler.IsActiveResponse
		m, err = stream.Recv()
		if err == nil {
			activity <- m.GetResult()
		}
	}
	return err
}
