package node

import "context"

// Missing looks at Redis now and tells what keeps the node from being ready.
func (n *Node) Missing(ctx context.Context) []string {
	if err := n.checkRedis(ctx); err != nil {
		return []string{err.Error()}
	}
	return n.unreadyReasons()
}

// UnreadyReasons are the reasons for /readyz to fail, without a new look at Redis.
func (n *Node) UnreadyReasons() []string { return n.unreadyReasons() }

// StopEngines ends what Stop ends before the links to peers.
func (n *Node) StopEngines() {
	n.cancel()
	n.engines.Wait()
}
