package kafka

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

const canary = "c4n4ry-0f-a-password"

// No way of printing or encoding a secret or what holds it shows it.
func TestSecretsAreNeverShown(t *testing.T) {
	secret := SecretText(canary)
	cluster := NewCluster([]string{"127.0.0.1:1"}, SASLPlain("user", secret))
	if _, err := cluster.settings(); err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Secret  Secret
		secret  Secret
		cluster *Cluster
		Cluster *Cluster
		sasl    saslSettings
	}
	held := holder{Secret: secret, secret: secret, cluster: cluster, Cluster: cluster, sasl: cluster.full.sasl}
	for _, v := range []any{secret, &secret, cluster, held, &held, []Secret{secret}, map[string]Secret{"a": secret}, cluster.given, cluster.full} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%t"} {
			hides(t, verb, fmt.Sprintf(verb, v))
		}
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(handler(&b)).Info("a secret", "it", v, slog.Group("g", "it", v))
			hides(t, "slog", b.String())
		}
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte(err.Error())
		}
		hides(t, "json", string(b))
		hides(t, "error", fmt.Errorf("with %v", v).Error())
	}
	if text, err := secret.MarshalText(); err != nil || string(text) != hidden {
		t.Errorf("MarshalText() = %q, %v", text, err)
	}
}

func hides(t *testing.T, how, text string) {
	t.Helper()
	for _, spelled := range spellings(canary) {
		if strings.Contains(strings.ToLower(text), strings.ToLower(spelled)) {
			t.Errorf("%s shows the secret: %q", how, text)
		}
	}
}

func TestSecretsComeFromWhereTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	t.Setenv("WEIR_TEST_SECRET", "from the environment")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, file string
		secret     Secret
		want       string
		err        string
	}{
		{name: "text", secret: SecretText(" a\n"), want: " a\n"},
		{name: "file", file: " pass word \r\n\n", secret: SecretFile(path), want: " pass word "},
		{name: "file without a line break", file: "x", secret: SecretFile(path), want: "x"},
		{name: "empty file", file: "\n", secret: SecretFile(path), err: "is empty"},
		{name: "huge file", file: strings.Repeat("x", smallFile+1), secret: SecretFile(path), err: "more than 1048576 bytes"},
		{name: "no file", secret: SecretFile(path + ".none"), err: "password.none"},
		{name: "environment", secret: SecretEnv("WEIR_TEST_SECRET"), want: "from the environment"},
		{name: "no environment", secret: SecretEnv("WEIR_TEST_NO_SECRET"), err: "WEIR_TEST_NO_SECRET is empty"},
		{name: "function", secret: SecretFunc(func(context.Context) (string, error) { return "f", nil }), want: "f"},
	} {
		write(tt.file)
		got, err := tt.secret.get(t.Context())
		if tt.err != "" {
			wantText(t, err, tt.err)
		} else if err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// saslFake is a cluster that wants a login.
func saslFake(t *testing.T, mechanism string, opts ...kfake.Opt) *kfake.Cluster {
	return kafkatest.NewFake(t, append([]kfake.Opt{kfake.EnableSASL(), kfake.Superuser(mechanism, "ada", canary)}, opts...)...)
}

// A test that greps for a secret must find it however it is written.
func TestSpellings(t *testing.T) {
	for _, before := range []string{"", "a", "ab", "abc", "user\x00name\x00"} {
		text := before + canary + "behind"
		for name, written := range map[string]string{
			"plain": text, "base64": base64.StdEncoding.EncodeToString([]byte(text)), "base64 for URLs": base64.URLEncoding.EncodeToString([]byte(text)),
			"hex": fmt.Sprintf("%X", text), "%q": fmt.Sprintf("%q", text),
		} {
			if !slices.ContainsFunc(spellings(canary), func(s string) bool { return strings.Contains(strings.ToLower(written), strings.ToLower(s)) }) {
				t.Errorf("%s of %q isn't found: %s", name, text, written)
			}
		}
	}
}

func TestLogins(t *testing.T) {
	for _, tt := range []struct {
		mechanism string
		option    ClusterOption
	}{
		{saslPlain, SASLPlain("ada", SecretText(canary))},
		{saslSHA256, SASLScramSHA256("ada", SecretText(canary))},
		{saslSHA512, SASLScramSHA512("ada", SecretText(canary))},
	} {
		fake := saslFake(t, tt.mechanism)
		if err := askMetadata(t, NewCluster(fake.ListenAddrs(), tt.option)); err != nil {
			t.Errorf("%s: %v", tt.mechanism, err)
		}
	}
}

// The secret is read again at each session, so that it can change under a job.
func TestPasswordChangesUnderAJob(t *testing.T) {
	fake := saslFake(t, saslPlain)
	var asked atomic.Int32
	c := NewCluster(fake.ListenAddrs(), SASLPlain("ada", SecretFunc(func(context.Context) (string, error) {
		asked.Add(1)
		return canary, nil
	})))
	for want := range int32(2) {
		if got := asked.Load(); got != want {
			t.Errorf("asked %d times, want %d", got, want)
		}
		if err := askMetadata(t, c); err != nil {
			t.Fatal(err)
		}
	}
}

// What kfake does about a wrong login is to hang up; a broker answers as here.
func TestWrongLogin(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  kmsg.Key
		code *kerr.Error
		text string // of the broker
		want []string
	}{
		{"wrong password", kmsg.SASLAuthenticate, kerr.SaslAuthenticationFailed, "Authentication failed: Invalid username or password",
			[]string{"SASL_AUTHENTICATION_FAILED", "Invalid username or password", `the login of user "ada" by SASL PLAIN`, "check the user and the password"}},
		{"a broker that repeats the password", kmsg.SASLAuthenticate, kerr.SaslAuthenticationFailed, "no user has the password " + canary,
			[]string{"no user has the password [secret]", "SASL_AUTHENTICATION_FAILED"}},
		{"another mechanism", kmsg.SASLHandshake, kerr.UnsupportedSaslMechanism, "",
			[]string{"UNSUPPORTED_SASL_MECHANISM", "doesn't offer SASL PLAIN"}},
		{"a listener without logins", kmsg.SASLHandshake, kerr.IllegalSaslState, "",
			[]string{"takes no login"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := saslFake(t, saslPlain)
			fake.ControlKey(int16(tt.key), func(r kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				resp := r.ResponseKind()
				switch resp := resp.(type) {
				case *kmsg.SASLAuthenticateResponse:
					resp.ErrorCode, resp.ErrorMessage = tt.code.Code, &tt.text
				case *kmsg.SASLHandshakeResponse:
					resp.ErrorCode = tt.code.Code
				}
				return resp, nil, true
			})
			err := askMetadata(t, NewCluster(fake.ListenAddrs(), SASLPlain("ada", SecretText(canary))))
			wantText(t, err, tt.want...)
			for e := err; e != nil; e = errors.Unwrap(e) {
				hides(t, "the error", e.Error())
			}
			hides(t, "the error", fmt.Sprintf("%+v %#v", err, err))
			if !errors.Is(err, weir.ErrRefused) || temporary(err) {
				t.Errorf("%v: must end the job, and not be waited for", err)
			}
		})
	}
}

// A password isn't sent where others can read it, wherever the brokers say that
// they are.
func TestPasswordInTheClear(t *testing.T) {
	never := SecretFunc(func(context.Context) (string, error) {
		t.Error("the secret was asked for")
		return canary, nil
	})
	for _, tt := range []struct {
		broker string
		login  ClusterOption
		more   ClusterOption
		want   string
	}{
		{"broker.example.org:9092", SASLPlain("ada", never), Name("x"), "SASL PLAIN would send the password to broker.example.org:9092 readable"},
		{"10.0.0.1:9092", SASLOAuthBearer(never), Name("x"), "SASL OAUTHBEARER would send the token to 10.0.0.1:9092 readable"},
		{"localhost.example.org:9092", SASLPlain("ada", never), Name("x"), "readable for everybody"},
		{"127.0.0.1:9092", SASLPlain("ada", never), Name("x"), ""},
		{"[::1]:9092", SASLPlain("ada", never), Name("x"), ""},
		{"localhost:9092", SASLOAuthBearer(never), Name("x"), ""},
		{"broker.example.org:9092", SASLPlain("ada", never), SASLWithoutTLS(), ""},
		{"broker.example.org:9092", SASLPlain("ada", never), TLS(), ""},
		{"broker.example.org:9092", SASLScramSHA256("ada", never), Name("x"), ""},
	} {
		cl, err := NewCluster([]string{tt.broker}, tt.login, tt.more).client()
		if err == nil {
			cl.Close()
		}
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.broker, err)
		}
		if tt.want != "" {
			wantText(t, err, tt.want)
		}
	}
	// A loopback address may lead to a broker that calls itself something else.
	m := saslSettings{kind: saslPlain, user: "ada", secret: never, last: new(atomic.Pointer[Secret])}.mechanism(false)
	_, _, err := m.Authenticate(t.Context(), "broker.example.org:9092")
	wantText(t, err, "broker.example.org:9092", "readable")
	if temporary(err) {
		t.Errorf("%v: must not be waited for", err)
	}
}

func TestSecretThatCantBeHad(t *testing.T) {
	for _, tt := range []struct {
		name   string
		secret Secret
		want   string
		waits  bool
	}{
		{"no file", SecretFile("/nonexistent/password"), "get the password for SASL PLAIN: open /nonexistent/password", false},
		{"empty", SecretText(""), "it is empty", false},
		{"a service that is away", SecretFunc(func(context.Context) (string, error) { return "", busy{} }), "the vault is sealed", true},
		{"a service that refuses", SecretFunc(func(context.Context) (string, error) { return "", errors.New("no such role") }), "no such role", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := askMetadata(t, NewCluster(saslFake(t, saslPlain).ListenAddrs(), SASLPlain("ada", tt.secret), soon()))
			wantText(t, err, tt.want)
			if temporary(err) != tt.waits || errors.Is(err, weir.ErrRefused) {
				t.Errorf("%v: waited for: %t, want %t; refused: %t, want false", err, temporary(err), tt.waits, errors.Is(err, weir.ErrRefused))
			}
		})
	}
}

type busy struct{}

func (busy) Error() string   { return "the vault is sealed" }
func (busy) Temporary() bool { return true }
