package workercheck

// Profiles of workers.
const (
	ProfileFull    = "full"
	ProfileMinimal = "minimal"
)

// Case is one thing to check.
type Case struct {
	// Name is how it is chosen.
	Name string
	// Title says what the worker has to do.
	Title string
	// Rules are those that the case is about; others may fail in it too.
	Rules []Rule
	// Full: only the full profile has it.
	Full bool
	run  func(*trial)
}

// Cases are all cases, in the order of the document.
func Cases() []Case {
	return []Case{
		{"hello", "Hello comes first and is valid, and each process has its own id",
			[]Rule{ruleHelloFirst, ruleWorkerID, ruleHelloSettings, ruleEpoch}, false, checkHello},
		{"announces", "Hello announces prefetch, early leases and heartbeats", []Rule{ruleAnnounce}, true,
			checkAnnounces},
		{"one-hello", "one Hello at a time, and another node if no Welcome comes", []Rule{ruleOneHello}, false,
			checkOneHello},
		{"refused", "a refused Hello is repeated, with pauses", []Rule{ruleRefused, ruleEpoch}, false, checkRefused},
		{"lease", "a lease is started, has one result, and is forgotten when that is acknowledged",
			[]Rule{ruleStarted, ruleHeldOnly, ruleAckFinal}, false, checkLease},
		{"payloads", "payloads and outputs are passed on byte for byte", []Rule{rulePayload}, false, checkPayloads},
		{"same-lease", "a lease that comes twice starts one handler", []Rule{ruleStartOnce}, false, checkSameLease},
		{"slots", "no more handlers than slots, and as many if there is work", []Rule{ruleSlots}, false, checkSlots},
		{"unknown-messages", "unknown messages, fields and statuses are ignored", []Rule{ruleUnknown}, false,
			checkUnknown},
		{"timeout", "a handler ends at its timeout, and not before", []Rule{ruleTimeout}, false, checkTimeout},
		{"failures", "failures are reported as what they are", []Rule{ruleOutcome, ruleRetryAfter}, false,
			checkFailures},
		{"panic", "a panic and a missing handler fail the attempt, and the worker goes on", []Rule{rulePanic}, false,
			checkPanic},
		{"kept-results", "a result is repeated on each stream until it is acknowledged",
			[]Rule{ruleKeepResult, ruleSameResult, ruleAckFinal}, false, checkKeptResults},
		{"acks", "any acknowledgement is final", []Rule{ruleAckFinal}, false, checkAcks},
		{"node-lost", "a result that a lost node did not acknowledge goes to another node", []Rule{ruleKeepResult,
			ruleLive},
			false, checkNodeLost},
		{"stale", "a lease whose result was stale is reported as lost until that is acknowledged",
			[]Rule{ruleStaleLost},
			true,
			checkStale},
		{"cancel", "Cancel stops the named handlers only", []Rule{ruleCancel, ruleCancelOther}, false, checkCancel},
		{"cancel-lost", "a lost lease stops its handler", []Rule{ruleCancelLost}, false, checkCancelLost},
		{"heartbeats", "heartbeats come in time and keep the leases", []Rule{ruleHeartbeats}, false, checkHeartbeats},
		{"trust", "handlers stop when the session has expired", []Rule{ruleTrustEnds, ruleReportLost}, false,
			checkTrust},
		{"silent-node", "handlers stop and the stream is closed if heartbeats stay unanswered", []Rule{ruleTrustEnds,
			ruleTrustClose},
			false, checkSilentNode},
		{"silent-node-left", "another node is found while the leases can be trusted", []Rule{ruleSilentNode}, true,
			checkSilentNodeLeft},
		{"late-ack", "an acknowledgement counts from when its heartbeat was sent", []Rule{ruleLateAck}, false,
			checkLateAck},
		{"unconfirmed", "acknowledgements count when the leases are confirmed", []Rule{ruleUnconfirmed}, false,
			checkUnconfirmed},
		{"confirmed", "leases that a new stream has confirmed are trusted on", []Rule{ruleUnconfirmed}, false,
			checkConfirmed},
		{"suspended", "a process that was suspended starts nothing on old leases", []Rule{ruleSuspended}, false,
			checkSuspended},
		{"trust-without-heartbeats", "handlers stop two thirds of a lease after the stream has broken",
			[]Rule{ruleTwoThirds, ruleReportLost}, false, checkTwoThirds},
		{"reconnect", "handlers run on while the worker reconnects", []Rule{ruleReconnect, ruleLive, ruleKeepResult},
			false,
			checkReconnect},
		{"load-balancer", "streams are cut, and no advertised address answers", []Rule{ruleConfigured}, false,
			checkLoadBalancer},
		{"advertised", "advertised addresses are used when the configured one is gone", []Rule{ruleAdvertised}, true,
			checkAdvertised},
		{"keepalive", "a connection that has died silently is noticed", []Rule{ruleKeepalive}, true, checkKeepalive},
		{"drain", "the worker moves to another node with its leases", []Rule{ruleDrain}, false, checkDrain},
		{"drain-outage", "leases outlive the session after Drain", []Rule{ruleDrainTrust}, true, checkDrainOutage},
		{"relocate", "the worker moves when its node asks it to, and keeps its session until then", []Rule{ruleRelocate},
			true, checkRelocate},
		{"stop-idle", "SIGTERM: an idle worker closes its stream and exits with 0", []Rule{ruleFinish, ruleCleanEnd},
			false,
			checkStopIdle},
		{"stop-alone", "SIGTERM: a worker that finds no node exits with 0", []Rule{ruleFinish}, false, checkStopAlone},
		{"stop", "SIGTERM: nothing new, finish, wait for acknowledgements, exit with 0",
			[]Rule{ruleDraining, ruleFinish, ruleCleanEnd}, false, checkStop},
		{"stop-cut", "a stream that breaks while the worker stops loses nothing", []Rule{ruleStopCut}, false,
			checkStopCut},
		{"drain-timeout", "handlers that take too long are ended, uncounted", []Rule{ruleDrainTimeout}, true,
			checkDrainTimeout},
		{"prefetch", "leases wait for a slot in order, and go back after 50 ms", []Rule{rulePrefetch, ruleLateReturn},
			false,
			checkPrefetch},
		{"returned-again", "what was returned shortly before a stream broke is returned again",
			[]Rule{ruleReturnedAgain},
			true,
			checkReturnedAgain},
		{"start-after", "an early lease starts when it is due, also if the stream breaks", []Rule{ruleStartAfter,
			ruleCancel}, false,
			checkStartAfter},
		{"tls", "only nodes of the given authority get a Hello", []Rule{ruleTLS}, false, checkTLS},
		{"client-certificate", "the worker shows its certificate", []Rule{ruleTLS}, true, checkClientCertificate},
		{"token", "each stream has the token that the file has then", []Rule{ruleToken}, false, checkToken},
	}
}

// ofProfile reports whether a profile has the case.
func (c Case) ofProfile(profile string) bool { return !c.Full || profile == ProfileFull }
