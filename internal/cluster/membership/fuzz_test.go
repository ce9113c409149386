package membership

import (
	"net"
	"reflect"
	"testing"

	"github.com/hashicorp/memberlist"
)

// FuzzDelegate: for any metadata, a node is a member with the name that memberlist gave it, and its metadata is
// decoded or ignored.
func FuzzDelegate(f *testing.F) {
	f.Add("n", encodeMeta(nodeMeta{GRPC: "a:1", Peer: "b:2", Process: "n-1", Version: "v1", Events: 1001, Aside: true,
		Blind: 2}))
	f.Add("n", encodeMeta(nodeMeta{}))
	f.Add("", []byte(`{"g":5}`))
	f.Add("a\nb", []byte(`{"g":"\u0000","p":"::::","a":"yes"}`))
	f.Add("n", []byte("\xff\xfe"))
	f.Add("n", []byte(`[[[[[[[[[[`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		events := 0
		d := &delegate{onEvent: func() { events++ }, log: func(string, ...any) {},
			allowsIP: func(net.IP) bool { return true }}
		d.setMetadata(nodeMeta{})
		d.mu.nodes = map[string]nodeEntry{}
		n := &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: text}
		for _, notify := range []func(*memberlist.Node){d.NotifyJoin, d.NotifyUpdate, d.NotifyLeave, d.NotifyJoin} {
			notify(n)
		}
		d.NotifyConflict(n, n)
		d.NotifyMsg(text)
		d.MergeRemoteState(text, true)
		entry, known := d.mu.nodes[name]
		if !known || len(d.mu.nodes) != 1 || events != 4 || entry.info.Name != name {
			t.Fatalf("%d events, nodes %+v", events, d.mu.nodes)
		}
		if len(d.NodeMeta(memberlist.MetaMaxSize)) > memberlist.MetaMaxSize {
			t.Fatal("too long")
		}
		m, err := decodeMeta(text)
		if err != nil {
			return
		}
		if again, err := decodeMeta(encodeMeta(m)); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v (%v)", m, again, err)
		}
	})
}
