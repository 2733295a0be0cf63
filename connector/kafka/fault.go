package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
)

// waitable is an error that passes by itself: control repeats the call, and says
// what it waits for.
type waitable struct{ error }

func (e waitable) Unwrap() error   { return e.error }
func (e waitable) Temporary() bool { return true }

// explain returns an error of the client with what was being done, the cluster,
// and what to do about it. One that is worth waiting for says Temporary() bool;
// one that no repetition changes is a weir.ErrRefused; of what is left the caller
// knows more. It is idempotent; nil stays nil.
func (c *Cluster) explain(what string, err error) error {
	var done *explained
	if err == nil || errors.As(err, &done) {
		return err
	}
	err = c.login().scrub(err)
	text := fmt.Errorf("%s on kafka cluster %s: %w", what, c, err)
	if hint := c.refusal(err); hint != "" {
		return &explained{fmt.Errorf("%w: %w: %s", weir.ErrRefused, text, hint)}
	}
	if !temporary(err) {
		return &explained{text}
	}
	_, guessed := errors.AsType[*kgo.ErrFirstReadEOF](err) // the client's own words say more
	if errors.Is(err, io.EOF) && !guessed {
		text = fmt.Errorf("%w: a broker has hung up%s", text, c.login().suspected())
	}
	return &explained{waitable{text}}
}

// explainKnown is explain about topics that another broker has just told of: one
// that doesn't know them lags behind, as while it starts, or for a moment after
// they were made.
func (c *Cluster) explainKnown(what string, err error) error {
	var done *explained
	if !errors.Is(err, kerr.UnknownTopicOrPartition) || errors.As(err, &done) {
		return c.explain(what, err)
	}
	return &explained{waitable{fmt.Errorf("%s on kafka cluster %s: %w: another broker knows it, and this one not yet", what, c, c.login().scrub(err))}}
}

// explained is an error that explain has seen.
type explained struct{ error }

func (e *explained) Unwrap() error { return e.error }

// temporary reports whether an error of the client passes by itself: no broker
// can be reached, or the one that was asked isn't, or not yet, the one to ask.
// The end of the caller's own context isn't among them.
func temporary(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || certificate(err) || denied(err) || errors.Is(err, kgo.ErrClientClosed) {
		return false
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return slices.Contains(passing, k)
	}
	if t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err); ok && t.Temporary() {
		return true
	}
	if _, ok := errors.AsType[*secretError](err); ok && (errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission)) {
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok { // all of what dials, reads and writes return, and deadlines
		return true
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || kgo.IsRetryableBrokerErr(err)
}

// passing are the codes of a cluster that is busy with itself. Codes about a
// producer's or a member's own place aren't among them, nor are unknown topics:
// whether those come is for the caller to know.
var passing = []*kerr.Error{
	kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch,
	kerr.PreferredLeaderNotAvailable, kerr.EligibleLeadersNotAvailable, kerr.ReplicaNotAvailable, kerr.OffsetNotAvailable,
	kerr.BrokerNotAvailable, kerr.NotController, kerr.NetworkException, kerr.RequestTimedOut, kerr.KafkaStorageError,
	kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
	kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
	kerr.ConcurrentTransactions, kerr.UnstableOffsetCommit, kerr.ThrottlingQuotaExceeded, kerr.RebootstrapRequired,
}

// certificate reports whether one side refused the other's certificate, or
// doesn't speak TLS at all.
func certificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "remote error" || op.Op == "local error") // as package tls calls its alerts
}

// denied reports whether a broker refuses who asks.
func denied(err error) bool {
	if _, ok := errors.AsType[*loginError](err); ok {
		return true
	}
	k, ok := errors.AsType[*kerr.Error](err)
	return ok && slices.Contains([]*kerr.Error{
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.SecurityDisabled,
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.DelegationTokenAuthorizationFailed,
	}, k)
}

// login is how the job logs in, once that is known.
func (c *Cluster) login() saslSettings {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		return saslSettings{}
	}
	return c.full.sasl
}

// refusal says what to do about an error that repeating doesn't help; "" for all
// others.
func (c *Cluster) refusal(err error) string {
	login := c.login()
	who := "a client that doesn't log in"
	switch {
	case login.kind == saslToken:
		who = "whom the token names"
	case login.kind != noSASL:
		who = fmt.Sprintf("user %q", login.user)
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		switch k {
		case kerr.SaslAuthenticationFailed:
			if login.kind == saslToken {
				return "the broker doesn't accept the token: it may have expired, or be meant for somebody else"
			}
			return fmt.Sprintf("the broker doesn't accept the login of %s by SASL %s: check the user and the %s, and that the broker has them for this mechanism", who, login.kind, login.what())
		case kerr.UnsupportedSaslMechanism:
			return fmt.Sprintf("the broker's listener doesn't offer SASL %s: choose another mechanism (--sasl), or another port", login.kind)
		case kerr.IllegalSaslState, kerr.SecurityDisabled:
			return "the broker's listener takes no login: leave it out, or choose another port"
		case kerr.TopicAuthorizationFailed:
			return fmt.Sprintf("%s may not do that with the topic: allow Read and Describe on what the job reads, Write and Describe on what it writes and on its control topic", who)
		case kerr.GroupAuthorizationFailed:
			return fmt.Sprintf("%s may not use the consumer group: allow Read on it", who)
		case kerr.TransactionalIDAuthorizationFailed:
			return fmt.Sprintf("%s may not use the transactional id: allow Write and Describe on the job's two", who)
		case kerr.ClusterAuthorizationFailed:
			return fmt.Sprintf("%s may not do that on the cluster: allow Create, or create the job's topics beforehand, and IdempotentWrite for brokers before 3.0", who)
		case kerr.DelegationTokenAuthorizationFailed:
			return who + " may not use the delegation token"
		case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
			return "the topic doesn't exist there: create it, or correct its name; a topic that may not be seen (Describe) looks the same"
		}
	}
	if _, ok := errors.AsType[*loginError](err); ok {
		return "correct the login, or the broker's side of it"
	}
	return untrusted(err)
}

// untrusted says what to do where one side doesn't accept the other's certificate;
// "" for all other errors.
func untrusted(err error) string {
	if !certificate(err) {
		return ""
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "name the authority that signed the broker's certificate (--tls-ca), if it is the right broker"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "reach the broker by a name that is in its certificate, or say which name must be (--tls-server-name)"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the broker's certificate must be renewed or replaced"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the broker's listener doesn't speak TLS: choose another port, or leave TLS out"
	}
	return "the broker doesn't accept the job's certificate, or there is none: name it and its key (--tls-cert, --tls-key)"
}
