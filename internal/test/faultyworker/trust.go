package faultyworker

import (
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// trustBeat is how often trust is looked at.
const trustBeat = 5 * time.Millisecond

// beat sends heartbeats, and looks for another node when they are not answered.
func (s *stream) beat() {
	w := s.w
	if s.sessionTTL == 0 {
		return
	}
	every := s.sessionTTL / 4
	if w.has("seq-goes-on") {
		s.seq = w.lastSeq
	}
	if w.has("slow-heartbeats") {
		every *= 2
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		w.mu.Lock()
		if !w.has("constant-seq") || s.seq == 0 {
			s.seq++
		}
		w.lastSeq = s.seq
		s.sent[s.seq] = time.Now()
		for _, at := range s.sent {
			if time.Since(at) > s.sessionTTL/3 && !w.has("stays-with-silent-node") {
				s.silent = true
				s.askToReplace()
			}
		}
		if !w.has("heartbeats-not-sent") && (len(w.attempts) > 0 || !w.has("no-heartbeats-when-idle")) {
			s.send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Heartbeat{
				Heartbeat: &fermatav1.Heartbeat{Seq: s.seq},
			}})
		}
		w.mu.Unlock()
		select {
		case <-ticker.C:
		case <-s.ended:
			return
		}
	}
}

func (s *stream) handleHeartbeatAck(ack *fermatav1.HeartbeatAck) {
	w := s.w
	at, found := s.sent[ack.GetSeq()]
	for seq := range s.sent {
		if seq < ack.GetSeq() {
			delete(s.sent, seq)
		}
	}
	s.unconfirmed = s.unconfirmed && (!ack.GetConfirmed() || w.has("never-confirms")) && !w.has("ignores-confirmed")
	late := !time.Now().Before(w.trustedUntil) && !w.has("keeps-stream")
	if !found || s.unconfirmed || s != w.stream || late {
		return
	}
	if w.has("trusts-from-ack") {
		at = time.Now()
	}
	s.ackedAt = at
	w.trustedUntil = at.Add(s.trustPeriod())
}

// watchTrust ends trust when its time has come.
func (w *worker) watchTrust() {
	for range time.Tick(trustBeat) {
		w.mu.Lock()
		now := time.Now()
		if s := w.stream; s != nil && s.sessionTTL == 0 && (now.Before(w.trustedUntil) || w.has("starts-without-trust")) {
			w.trustedUntil = now.Add(s.trustPeriod())
		}
		w.endTrustIfOver()
		w.mu.Unlock()
	}
}

func (w *worker) endTrustIfOver() {
	if w.epoch == 0 || time.Now().Before(w.trustedUntil) || w.has("starts-without-trust") && w.stream != nil {
		return
	}
	if s := w.stream; s != nil && !w.has("keeps-stream") {
		w.stream = nil
		s.cancel()
	}
	w.loseAll()
}
