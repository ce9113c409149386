package membership

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults and limits of [Options].
const (
	DefaultBindAddr    = "0.0.0.0"
	DefaultRejoinEvery = 10 * time.Second
	DefaultKeysEvery   = 3 * time.Second

	// MaxLabel bounds Label, in bytes.
	MaxLabel = memberlist.LabelMaxSize
)

// Failure detection; doc.go describes the resulting times.
const (
	probeInterval    = 500 * time.Millisecond
	probeTimeout     = 250 * time.Millisecond
	suspicionMult    = 4
	suspicionMaxMult = 3
	gossipInterval   = 200 * time.Millisecond
	pushPullInterval = 5 * time.Second
	streamTimeout    = 3 * time.Second
	deadNodeReclaim  = 5 * time.Second
)

// Options of a [Cluster]. Name is required.
type Options struct {
	// Name is this node's name, unique in the cluster.
	Name string
	// BindAddr is the IP to listen on, TCP and UDP. Default 0.0.0.0.
	BindAddr string
	// BindPort is the port to listen on; 0 takes a free one.
	BindPort int
	// AdvertiseAddr is the IP that others use. Empty: memberlist chooses BindAddr, or a private address of this
	// host.
	AdvertiseAddr string
	// AdvertisePort is the port that others use. Default: the bound one.
	AdvertisePort int
	// Join are nodes to join: "host:port" or "host", where host is an IP or a DNS name, all of whose addresses
	// are tried. The default port is BindPort. Empty: this node is the first, or the only one.
	Join []string
	// KeyFile holds the keys that encrypt gossip; see [ReadKeys]. Empty: gossip is plain text. It is reloaded
	// every KeysEvery, 3 s by default, so that keys can be replaced while the cluster runs.
	KeyFile   string
	KeysEvery time.Duration
	// Allow are the networks that other nodes may be in, and that packets and streams may come from. Empty: any.
	Allow []netip.Prefix
	// Label names the cluster, at most 255 bytes. Nodes with different labels refuse each other.
	Label string
	// GRPCAddr and PeerAddr are published to the other members; together at most about 395 bytes. So is Process,
	// the name of this process in locks.
	GRPCAddr string
	PeerAddr string
	Process  string
	// Version of this node's program is published too, cut off after 32 bytes.
	Version string
	// EventsKeep is the number of events that this node is configured to keep. It is published, so that nodes
	// can detect differences.
	EventsKeep int
	// Defaults is the fingerprint of this node's configured policy defaults. It is published too.
	Defaults string
	// RejoinEvery is the mean interval of attempts to join nodes that are not members. Default 10 s.
	RejoinEvery time.Duration

	// Now is the time by a clock that all nodes share. It bounds the numbers in states that others publish. Default:
	// that of this host.
	Now func() time.Time

	// Transport carries the gossip. Default: the host's network, guarded as in invariant 7.
	Transport Transport

	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	ring *memberlist.Keyring // the keys of KeyFile; nil without
}

func (o Options) withDefaults() (Options, error) {
	if o.BindAddr == "" {
		o.BindAddr = DefaultBindAddr
	}
	if o.AdvertisePort == 0 {
		o.AdvertisePort = o.BindPort
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.RejoinEvery == 0 {
		o.RejoinEvery = DefaultRejoinEvery
	}
	if o.KeysEvery == 0 {
		o.KeysEvery = DefaultKeysEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.validate(); err != nil {
		return o, fmt.Errorf("membership: %w", err)
	}
	return o, nil
}

func (o Options) validate() error {
	if o.Name == "" {
		return errors.New("no name")
	}
	if len(o.Name) > maxName {
		return fmt.Errorf("a name of %d bytes: at most %d", len(o.Name), maxName)
	}
	if net.ParseIP(o.BindAddr) == nil {
		return fmt.Errorf("bind address %q is not an IP", o.BindAddr)
	}
	if o.AdvertiseAddr != "" && net.ParseIP(o.AdvertiseAddr) == nil {
		return fmt.Errorf("advertised address %q is not an IP", o.AdvertiseAddr)
	}
	for _, port := range []int{o.BindPort, o.AdvertisePort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("port %d is out of range", port)
		}
	}
	if own := net.ParseIP(cmp.Or(o.AdvertiseAddr, o.BindAddr)); !own.IsUnspecified() && !o.allowsIP(own) {
		return fmt.Errorf("the allowed networks do not include this node's own address %v", own)
	}
	if len(o.Label) > MaxLabel {
		return fmt.Errorf("label of %d bytes: at most %d", len(o.Label), MaxLabel)
	}
	longest := o.nodeMeta()
	longest.Aside, longest.Blind, longest.Latency = true, 1000, 100_000
	if n := len(encodeMeta(longest)); n > memberlist.MetaMaxSize {
		return fmt.Errorf("addresses make %d bytes of metadata: at most %d", n, memberlist.MetaMaxSize)
	}
	if o.RejoinEvery < 0 || o.KeysEvery < 0 {
		return fmt.Errorf("rejoin interval %v, interval of keys %v: negative", o.RejoinEvery, o.KeysEvery)
	}
	return nil
}

// allowsIP reports whether a node may have this address.
func (o Options) allowsIP(ip net.IP) bool {
	if len(o.Allow) == 0 {
		return true
	}
	addr, ok := netip.AddrFromSlice(ip)
	return ok && slices.ContainsFunc(o.Allow, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// memberlistConfig is memberlist's configuration, tuned for a data centre.
func (o Options) memberlistConfig(d *delegate) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = o.Name
	c.BindAddr, c.BindPort = o.BindAddr, o.BindPort
	c.AdvertiseAddr, c.AdvertisePort = o.AdvertiseAddr, o.AdvertisePort
	c.Keyring = o.ring
	for _, p := range o.Allow {
		c.CIDRsAllowed = append(c.CIDRsAllowed,
			net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
	}
	c.Label = o.Label
	c.ProbeInterval, c.ProbeTimeout = probeInterval, probeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = suspicionMult, suspicionMaxMult
	c.GossipInterval = gossipInterval
	c.PushPullInterval = pushPullInterval
	c.TCPTimeout = streamTimeout
	c.DeadNodeReclaimTime = deadNodeReclaim
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = true, true
	c.EnableCompression = false // compressed messages may be bombs, and the sizes of encrypted ones leak metadata
	c.LogOutput = &logBridge{logger: o.Logger}
	c.Delegate, c.Events, c.Conflict, c.Alive = d, d, d, d
	return c
}

// nodeMeta is the metadata that the node publishes at its start.
func (o Options) nodeMeta() nodeMeta {
	return nodeMeta{
		GRPC: o.GRPCAddr, Peer: o.PeerAddr, Process: o.Process, Version: o.Version[:min(len(o.Version), 32)],
		Events: o.EventsKeep + 1, Defaults: o.Defaults, Features: AllFeatures,
	}
}
