package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Secret is where a password or a token comes from. It is asked at each session,
// so that what it gives may change while a job runs. No way of printing or
// encoding a Secret, or what holds one, shows what it gives.
type Secret struct {
	// A function, and not the text: package fmt prints the unexported fields of
	// a struct without asking their methods.
	get func(context.Context) (string, error)
}

// SecretText is a secret that the program has already.
func SecretText(s string) Secret {
	return Secret{func(context.Context) (string, error) { return s, nil }}
}

// SecretFile is the content of a file, without line breaks at its end, read at
// each session.
func SecretFile(path string) Secret {
	return Secret{func(context.Context) (string, error) {
		b, err := readSmall(path)
		if err != nil {
			return "", err
		}
		s := strings.TrimRight(string(b), "\r\n")
		if s == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		return s, nil
	}}
}

// SecretEnv is the value of an environment variable.
func SecretEnv(name string) Secret {
	return Secret{func(context.Context) (string, error) {
		if s := os.Getenv(name); s != "" {
			return s, nil
		}
		return "", fmt.Errorf("the environment variable %s is empty", name)
	}}
}

// SecretFunc asks f at each session: one a connection, and again when brokers
// want it renewed. Several goroutines may call f at once; it has 10 s. An error
// of f whose method Temporary() bool says true, or that comes from the network, is
// waited for; f must not put the secret into it.
func SecretFunc(f func(context.Context) (string, error)) Secret { return Secret{f} }

const hidden = "[secret]"

// String returns the same text for every secret.
func (Secret) String() string { return hidden }

// GoString returns the same text for every secret.
func (Secret) GoString() string { return hidden }

// Format writes the same text for every secret and verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText returns the same text for every secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON returns the same text for every secret.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// LogValue returns the same text for every secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// smallFile is the most that a file of secrets or settings may hold, in bytes.
const smallFile = 1 << 20

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, smallFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > smallFile {
		return nil, fmt.Errorf("%s has more than %d bytes: it can't be what it should be", path, smallFile)
	}
	return b, nil
}

// The SASL mechanisms, as brokers call them.
const (
	saslPlain   = "PLAIN"
	saslSHA256  = "SCRAM-SHA-256"
	saslSHA512  = "SCRAM-SHA-512"
	saslToken   = "OAUTHBEARER"
	noSASL      = ""
	saslInClear = "TLS encrypts it; without TLS it takes an explicit option (SASLWithoutTLS, --sasl-without-tls)"
)

// saslSettings are how the job logs in.
type saslSettings struct {
	kind    string
	user    string
	secret  Secret
	inClear bool                    // the secret may be sent without TLS
	last    *atomic.Pointer[Secret] // what was sent last, to be kept out of errors
}

// SASLPlain logs in with a user and a password, which the broker gets to see. It
// is refused without TLS, except on the loopback interface.
func SASLPlain(user string, password Secret) ClusterOption { return login(saslPlain, user, password) }

// SASLScramSHA256 logs in with a user and a password that is proven and not sent.
func SASLScramSHA256(user string, password Secret) ClusterOption {
	return login(saslSHA256, user, password)
}

// SASLScramSHA512 logs in with a user and a password that is proven and not sent.
func SASLScramSHA512(user string, password Secret) ClusterOption {
	return login(saslSHA512, user, password)
}

// SASLOAuthBearer logs in with a token, such as SecretFile of a file that another
// process keeps fresh, or SecretFunc. It is refused without TLS, except on the
// loopback interface: whoever has the token has its rights.
func SASLOAuthBearer(token Secret) ClusterOption { return login(saslToken, "", token) }

// SASLWithoutTLS lets SASLPlain and SASLOAuthBearer send their secret where
// everybody on the network can read it.
func SASLWithoutTLS() ClusterOption {
	return clusterOption(func(c *Cluster) { c.given.sasl.inClear = true })
}

func login(kind, user string, secret Secret) ClusterOption {
	return clusterOption(func(c *Cluster) {
		if had := c.given.sasl.kind; had != noSASL {
			c.fail(fmt.Errorf("there are two ways to log in, SASL %s and %s: leave one out", had, kind))
		}
		c.given.sasl.kind, c.given.sasl.user, c.given.sasl.secret = kind, user, secret
	})
}

func (s *saslSettings) check(tls bool, brokers []string) (errs []error) {
	if s.kind == noSASL {
		return nil
	}
	if s.kind != saslToken && s.user == "" {
		errs = append(errs, fmt.Errorf("SASL %s needs a user", s.kind))
	}
	if s.secret.get == nil {
		errs = append(errs, fmt.Errorf("SASL %s needs a %s", s.kind, s.what()))
	}
	for _, b := range brokers {
		if err := s.exposes(tls, b); err != nil {
			return append(errs, err)
		}
	}
	return errs
}

func (s saslSettings) what() string {
	if s.kind == saslToken {
		return "token"
	}
	return "password"
}

// suspected is what a hang-up may have to do with.
func (s saslSettings) suspected() string {
	if s.kind == noSASL {
		return ""
	}
	return fmt.Sprintf(", as some do that don't accept a login (here by SASL %s)", s.kind)
}

// exposes reports whether a session with a broker would send the secret where
// others can read it.
func (s *saslSettings) exposes(tls bool, broker string) error {
	if tls || s.inClear || s.kind != saslPlain && s.kind != saslToken || loopback(broker) {
		return nil
	}
	return fmt.Errorf("SASL %s would send the %s to %s readable for everybody on the way: %s", s.kind, s.what(), broker, saslInClear)
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// mechanism returns nil where nobody logs in.
func (s saslSettings) mechanism(tls bool) sasl.Mechanism {
	var m sasl.Mechanism
	switch s.kind {
	case noSASL:
		return nil
	case saslPlain:
		m = plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			pass, err := s.ask(ctx)
			return plain.Auth{User: s.user, Pass: pass}, err
		})
	case saslToken:
		m = oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := s.ask(ctx)
			return oauth.Auth{Token: token}, err
		})
	default:
		scramOf := scram.Sha256
		if s.kind == saslSHA512 {
			scramOf = scram.Sha512
		}
		m = scramOf(func(ctx context.Context) (scram.Auth, error) {
			pass, err := s.ask(ctx)
			return scram.Auth{User: s.user, Pass: pass}, err
		})
	}
	return session{m, s, tls}
}

// ask returns the secret as it is now.
func (s saslSettings) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := s.secret.get(ctx)
	if err == nil && text == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", &secretError{fmt.Sprintf("get the %s for SASL %s", s.what(), s.kind), err}
	}
	sent := SecretText(text)
	s.last.Store(&sent)
	return text, nil
}

// scrub returns err without the secret, which a broker's answer may repeat.
func (s saslSettings) scrub(err error) error {
	if s.last == nil || s.last.Load() == nil {
		return err
	}
	secret, _ := s.last.Load().get(context.Background())
	text := err.Error()
	if !strings.Contains(text, secret) || len(secret) < 4 { // a shorter one would only garble the message
		return err
	}
	// What is behind the text would still show it, but for the code.
	k, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return errors.New(strings.ReplaceAll(text, secret, hidden))
	}
	return &scrubbed{strings.ReplaceAll(text, secret, hidden), k}
}

// scrubbed is an error with a code of Kafka's whose text isn't what it was.
type scrubbed struct {
	text string
	code *kerr.Error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.code }

// session wraps a mechanism: brokers name each other, so that the address that a
// login goes to is known for sure only now.
type session struct {
	sasl.Mechanism
	settings saslSettings
	tls      bool
}

func (m session) Authenticate(ctx context.Context, broker string) (sasl.Session, []byte, error) {
	if err := m.settings.exposes(m.tls, broker); err != nil {
		return nil, nil, &loginError{err}
	}
	s, first, err := m.Mechanism.Authenticate(ctx, broker)
	if err != nil {
		return nil, nil, err
	}
	return challenge{s, broker}, first, nil
}

// challenge marks what goes wrong in an exchange as what it is.
type challenge struct {
	sasl.Session
	broker string
}

func (c challenge) Challenge(b []byte) (bool, []byte, error) {
	done, answer, err := c.Session.Challenge(b)
	if err != nil {
		err = &loginError{fmt.Errorf("log in at %s: %w", c.broker, err)}
	}
	return done, answer, err
}

// secretError is a secret that couldn't be had.
type secretError struct {
	what string
	err  error
}

func (e *secretError) Error() string { return e.what + ": " + e.err.Error() }
func (e *secretError) Unwrap() error { return e.err }

// loginError is a login that can't succeed by being repeated.
type loginError struct{ err error }

func (e *loginError) Error() string { return e.err.Error() }
func (e *loginError) Unwrap() error { return e.err }
