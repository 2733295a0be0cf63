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
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
)

// What becomes of an error: waited for, the end of the job, or neither, which
// costs the incarnation.
const (
	waits = iota
	refuses
	neither
)

func TestFaults(t *testing.T) {
	refusedDial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("unable to dial: %w", refusedDial), waits},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "kafka", IsNotFound: true}}, waits},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, waits},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, waits},
		{context.DeadlineExceeded, waits},
		{io.EOF, waits}, {io.ErrUnexpectedEOF, waits}, {net.ErrClosed, waits},
		{kerr.NotCoordinator, waits}, {kerr.CoordinatorLoadInProgress, waits}, {kerr.CoordinatorNotAvailable, waits},
		{kerr.LeaderNotAvailable, waits}, {kerr.NotLeaderForPartition, waits}, {kerr.NotController, waits},
		{kerr.NotEnoughReplicas, waits}, {kerr.RequestTimedOut, waits}, {kerr.ConcurrentTransactions, waits}, {kerr.UnstableOffsetCommit, waits},
		{fmt.Errorf("wrapped: %w", kerr.NetworkException), waits},

		{kerr.SaslAuthenticationFailed, refuses}, {kerr.UnsupportedSaslMechanism, refuses},
		{kerr.TopicAuthorizationFailed, refuses}, {kerr.GroupAuthorizationFailed, refuses},
		{kerr.ClusterAuthorizationFailed, refuses}, {kerr.TransactionalIDAuthorizationFailed, refuses},
		{fmt.Errorf("wrapped: %w", kerr.UnknownTopicOrPartition), refuses}, {kerr.UnknownTopicID, refuses},
		{&loginError{errors.New("log in at a:1: the server's proof is wrong")}, refuses},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, refuses},
		{fmt.Errorf("TLS handshake with a:1: %w", &tls.CertificateVerificationError{Err: errors.New("expired")}), refuses},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, refuses},

		{context.Canceled, neither}, {kgo.ErrClientClosed, neither},
		{kerr.ProducerFenced, neither}, {kerr.InvalidProducerEpoch, neither}, {kerr.InvalidTxnState, neither},
		{kerr.OffsetMetadataTooLarge, neither}, {kerr.MessageTooLarge, neither}, {kerr.UnknownServerError, neither},
		{kerr.OffsetOutOfRange, neither}, {kerr.UnknownMemberID, neither},
		{&secretError{"get the password", &os.PathError{Op: "open", Path: "p", Err: syscall.ENOENT}}, neither},
		{&secretError{"get the password", &os.PathError{Op: "open", Path: "p", Err: syscall.EACCES}}, neither},
		{&secretError{"get the token", refusedDial}, waits},
		{errors.New("something else"), neither},
	} {
		c := NewCluster([]string{"a:1"}, SASLScramSHA256("ada", SecretText(canary)))
		if _, err := c.settings(); err != nil {
			t.Fatal(err)
		}
		got := c.explain("do something", tt.err)
		wantText(t, got, "do something on kafka cluster a:1: "+tt.err.Error())
		passes, _ := errors.AsType[interface {
			error
			Temporary() bool
		}](got)
		switch is := (passes != nil && passes.Temporary()); {
		case is != (tt.want == waits) || temporary(tt.err) != is || temporary(got) != is:
			t.Errorf("%v: waited for: %t by its method, %t as it was, %t as it is now; want %t", tt.err, is, temporary(tt.err), temporary(got), tt.want == waits)
		case errors.Is(got, weir.ErrRefused) != (tt.want == refuses):
			t.Errorf("%v: ends the job: %t, want %t", got, errors.Is(got, weir.ErrRefused), tt.want == refuses)
		case !errors.Is(got, tt.err):
			t.Errorf("%v doesn't wrap %v", got, tt.err)
		}
		if again := c.explain("again", got); again != got {
			t.Errorf("explained twice: %v", again)
		}
	}
	if err := NewCluster([]string{"a:1"}).explain("do nothing", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	user := NewCluster([]string{"a:1"}, SASLScramSHA256("ada", SecretText(canary)))
	token := NewCluster([]string{"a:1"}, TLS(), SASLOAuthBearer(SecretText(canary)))
	nobody := NewCluster([]string{"a:1"})
	for _, tt := range []struct {
		c    *Cluster
		err  error
		want string
	}{
		{user, kerr.TopicAuthorizationFailed, `user "ada" may not do that with the topic: allow Read`},
		{token, kerr.GroupAuthorizationFailed, "whom the token names may not use the consumer group: allow Read"},
		{nobody, kerr.TransactionalIDAuthorizationFailed, "a client that doesn't log in may not use the transactional id: allow Write"},
		{user, kerr.ClusterAuthorizationFailed, "allow Create, or create the job's topics beforehand"},
		{token, kerr.SaslAuthenticationFailed, "doesn't accept the token: it may have expired"},
		{user, kerr.SaslAuthenticationFailed, "SASL SCRAM-SHA-256: check the user and the password"},
		{nobody, kerr.UnknownTopicOrPartition, "create it, or correct its name"},
		{nobody, &net.OpError{Op: "remote error", Err: tls.AlertError(42)}, "--tls-cert"},
		{nobody, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "--tls-ca"},
		{nobody, &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}}, "--tls-server-name"},
		{nobody, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "renewed"},
		{nobody, tls.RecordHeaderError{Msg: "not TLS"}, "doesn't speak TLS"},
		{user, io.EOF, "a broker has hung up, as some do that don't accept a login (here by SASL SCRAM-SHA-256)"},
		{nobody, io.EOF, "a broker has hung up"},
	} {
		if _, err := tt.c.settings(); err != nil {
			t.Fatal(err)
		}
		wantText(t, tt.c.explain("try", tt.err), tt.want)
	}
}
