package workercheck

// Document has the rules of the protocol. Each rule stands in the section that its anchor names.
const Document = "docs/worker-protocol.md"

// Rule is one rule of the protocol.
type Rule struct {
	// ID is how documents and reports name the rule.
	ID string
	// Anchor is the section of [Document].
	Anchor string
}

// Place is where the rule is written.
func (r Rule) Place() string { return Document + "#" + r.Anchor }

// The rules that cases check, by section of the document.
var (
	ruleProgram  = Rule{"P1", "the-check-program"}
	ruleJournal  = Rule{"P2", "the-check-program"}
	ruleHandlers = Rule{"P3", "the-check-program"}

	ruleHelloFirst    = Rule{"H1", "hello"}
	ruleWorkerID      = Rule{"H2", "hello"}
	ruleHelloSettings = Rule{"H3", "hello"}
	ruleEpoch         = Rule{"H4", "hello"}
	ruleOneHello      = Rule{"H5", "hello"}
	ruleRefused       = Rule{"H6", "hello"}
	ruleAnnounce      = Rule{"H7", "hello"}

	ruleStartOnce   = Rule{"L1", "leases"}
	ruleHeldOnly    = Rule{"L2", "leases"}
	ruleStarted     = Rule{"L3", "leases"}
	rulePayload     = Rule{"L4", "leases"}
	ruleSlots       = Rule{"L5", "leases"}
	ruleUnknown     = Rule{"L6", "leases"}
	ruleTimeout     = Rule{"L7", "leases"}
	ruleOutcome     = Rule{"R1", "results"}
	ruleRetryAfter  = Rule{"R2", "results"}
	rulePanic       = Rule{"R3", "results"}
	ruleKeepResult  = Rule{"R4", "results"}
	ruleSameResult  = Rule{"R5", "results"}
	ruleAckFinal    = Rule{"R6", "results"}
	ruleStaleLost   = Rule{"R7", "results"}
	ruleCancel      = Rule{"C1", "cancel"}
	ruleCancelLost  = Rule{"C2", "cancel"}
	ruleCancelOther = Rule{"C3", "cancel"}

	ruleHeartbeats  = Rule{"T1", "heartbeats-and-trust"}
	ruleTrustEnds   = Rule{"T2", "heartbeats-and-trust"}
	ruleTrustClose  = Rule{"T3", "heartbeats-and-trust"}
	ruleLateAck     = Rule{"T4", "heartbeats-and-trust"}
	ruleSuspended   = Rule{"T5", "heartbeats-and-trust"}
	ruleUnconfirmed = Rule{"T6", "heartbeats-and-trust"}
	ruleSilentNode  = Rule{"T7", "heartbeats-and-trust"}
	ruleTwoThirds   = Rule{"T8", "heartbeats-and-trust"}
	ruleReportLost  = Rule{"T9", "heartbeats-and-trust"}

	ruleReconnect     = Rule{"N1", "reconnecting"}
	ruleLive          = Rule{"N2", "reconnecting"}
	ruleConfigured    = Rule{"N3", "reconnecting"}
	ruleAdvertised    = Rule{"N4", "reconnecting"}
	ruleKeepalive     = Rule{"N5", "reconnecting"}
	ruleReturnedAgain = Rule{"N6", "reconnecting"}

	ruleDrain      = Rule{"D1", "drain"}
	ruleDrainTrust = Rule{"D2", "drain"}
	ruleRelocate   = Rule{"D3", "drain"}

	ruleDraining     = Rule{"S1", "stopping"}
	ruleFinish       = Rule{"S2", "stopping"}
	ruleCleanEnd     = Rule{"S3", "stopping"}
	ruleStopCut      = Rule{"S4", "stopping"}
	ruleDrainTimeout = Rule{"S5", "stopping"}

	rulePrefetch   = Rule{"O1", "prefetch"}
	ruleLateReturn = Rule{"O2", "prefetch"}
	ruleStartAfter = Rule{"O3", "early-leases"}

	ruleTLS   = Rule{"A1", "tls-and-tokens"}
	ruleToken = Rule{"A2", "tls-and-tokens"}
)

// Rules returns all rules, by section of the document.
func Rules() []Rule {
	return []Rule{
		ruleProgram, ruleJournal, ruleHandlers, ruleHelloFirst, ruleWorkerID, ruleHelloSettings, ruleEpoch,
		ruleOneHello, ruleRefused, ruleAnnounce, ruleStartOnce, ruleHeldOnly, ruleStarted, rulePayload, ruleSlots,
		ruleUnknown, ruleTimeout, ruleOutcome, ruleRetryAfter, rulePanic, ruleKeepResult, ruleSameResult,
		ruleAckFinal, ruleStaleLost, ruleCancel, ruleCancelLost, ruleCancelOther, ruleHeartbeats, ruleTrustEnds,
		ruleTrustClose, ruleLateAck, ruleSuspended, ruleUnconfirmed, ruleSilentNode, ruleTwoThirds, ruleReportLost,
		ruleReconnect, ruleLive, ruleConfigured, ruleAdvertised, ruleKeepalive, ruleReturnedAgain, ruleDrain,
		ruleDrainTrust, ruleRelocate,
		ruleDraining, ruleFinish, ruleCleanEnd, ruleStopCut, ruleDrainTimeout, rulePrefetch, ruleLateReturn,
		ruleStartAfter, ruleTLS, ruleToken,
	}
}
