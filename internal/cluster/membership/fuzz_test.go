package membership

import (
	"net"
	"reflect"
	"testing"

	"github.com/hashicorp/memberlist"
)

// FuzzDelegate: whatever bytes gossip brings, a node is a member of the name that
// memberlist gave it, and what it says of itself is read or left out.
func FuzzDelegate(f *testing.F) {
	f.Add("n", encodeMeta(meta{GRPC: "a:1", Peer: "b:2", Process: "n-1", Version: "v1", Events: 1001, Aside: true, Blind: 2}))
	f.Add("n", encodeMeta(meta{}))
	f.Add("", []byte(`{"g":5}`))
	f.Add("a\nb", []byte(`{"g":"\u0000","p":"::::","a":"yes"}`))
	f.Add("n", []byte("\xff\xfe"))
	f.Add("n", []byte(`[[[[[[[[[[`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		events := 0
		d := &delegate{onEvent: func() { events++ }, log: func(string, ...any) {}, allows: func(net.IP) bool { return true }}
		d.tell(meta{})
		d.mu.nodes = map[string]entry{}
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
