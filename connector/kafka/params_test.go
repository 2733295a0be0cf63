package kafka

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// knownParams are parameters as cli.Params has them: nothing is known while given is nil.
type knownParams struct {
	given    map[string]string
	declared []string
	needed   []string
	fallback map[string]string
}

func (a *knownParams) declare(name, fallback string) string {
	a.declared = append(a.declared, name)
	if a.fallback == nil {
		a.fallback = map[string]string{}
	}
	a.fallback[name] = fallback
	if v, ok := a.given[name]; ok {
		return v
	}
	return fallback
}

func (a *knownParams) Need(name, help string) string {
	a.needed = append(a.needed, name)
	return a.declare(name, "")
}
func (a *knownParams) String(name, fallback, help string) string { return a.declare(name, fallback) }
func (a *knownParams) Choice(name, fallback string, values []string, help string) string {
	return a.declare(name, fallback)
}
func (a *knownParams) Bool(name string, fallback bool, help string) bool {
	return a.declare(name, fmt.Sprint(fallback)) == "true"
}

// What is declared doesn't depend on the values: the flags are made from a first
// call, when there are none.
func TestConnectDeclaresTheSame(t *testing.T) {
	first := &knownParams{}
	Connect(first)
	second := &knownParams{given: map[string]string{"kafka-config": "/nonexistent", "sasl": "plain", "tls": "true", "brokers": "a:1"}}
	Connect(second)
	if !slices.Equal(first.declared, second.declared) {
		t.Errorf("declared %v at first, then %v", first.declared, second.declared)
	}
	if !slices.Equal(first.needed, []string{"brokers"}) || second.needed != nil {
		t.Errorf("needed %v, and with a file %v", first.needed, second.needed)
	}
	for _, name := range first.declared {
		if strings.Contains(name, "password") && name != "sasl-password-file" {
			t.Errorf("--%s is a secret on a command line", name)
		}
	}
	for _, name := range fileNames {
		if name != "sasl-password" && !slices.Contains(first.declared, name) {
			t.Errorf("the file may hold %s, and there is no --%s", name, name)
		}
	}
}

// summary is settings as a test can compare them.
type summary struct {
	Brokers          []string
	Client           string
	TLS, Clear       bool
	Roots, Cert, Key string
	Server           string
	SASL, User, Pass string
}

func summarize(t *testing.T, s *settings) summary {
	t.Helper()
	sum := summary{Brokers: s.brokers, Client: s.clientID, TLS: s.tls.on, Clear: s.sasl.inClear, Roots: s.tls.roots, Cert: s.tls.cert,
		Key: s.tls.key, Server: s.tls.serverName, SASL: s.sasl.kind, User: s.sasl.user}
	if s.sasl.secret.get != nil {
		pass, err := s.sasl.secret.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum.Pass = pass
	}
	return sum
}

func TestConnectSettings(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pass, token := write("pass", "from the file\n"), write("token", "t0k3n\n")
	config := write("kafka.conf", `# how to reach it
brokers = a:1 , b:2
client-id=filed

tls=true
tls-ca=ca.pem
tls-cert=/etc/cert.pem
tls-key=/etc/key.pem
tls-server-name=kafka
sasl=scram-sha-512
sasl-user=ada
sasl-password=from = the config
`)
	filed := summary{Brokers: []string{"a:1", "b:2"}, Client: "filed", TLS: true, Roots: filepath.Join(dir, "ca.pem"), Cert: "/etc/cert.pem",
		Key: "/etc/key.pem", Server: "kafka", SASL: saslSHA512, User: "ada", Pass: "from = the config"}
	change := func(f func(*summary)) summary { s := filed; f(&s); return s }
	for _, tt := range []struct {
		name  string
		given map[string]string
		env   string
		want  summary
		err   string
	}{
		{name: "brokers alone", given: map[string]string{"brokers": "a:1, b:2"}, want: summary{Brokers: []string{"a:1", "b:2"}, Client: "weir"}},
		{name: "tls", given: map[string]string{"brokers": "a:1", "tls": "true"}, want: summary{Brokers: []string{"a:1"}, Client: "weir", TLS: true}},
		{name: "a file for tls turns it on", given: map[string]string{"brokers": "a:1", "tls-ca": "x"},
			want: summary{Brokers: []string{"a:1"}, Client: "weir", TLS: true, Roots: "x"}},
		{name: "password by file", given: map[string]string{"brokers": "a:1", "tls": "true", "sasl": "plain", "sasl-user": "u", "sasl-password-file": pass},
			env: "not this", want: summary{Brokers: []string{"a:1"}, Client: "weir", TLS: true, SASL: saslPlain, User: "u", Pass: "from the file"}},
		{name: "password by environment", given: map[string]string{"brokers": "a:1", "sasl": "scram-sha-256", "sasl-user": "u"}, env: "from outside",
			want: summary{Brokers: []string{"a:1"}, Client: "weir", SASL: saslSHA256, User: "u", Pass: "from outside"}},
		{name: "token", given: map[string]string{"brokers": "a:1", "sasl": "oauthbearer", "sasl-token-file": token, "sasl-without-tls": "true"},
			want: summary{Brokers: []string{"a:1"}, Client: "weir", SASL: saslToken, Pass: "t0k3n", Clear: true}},
		{name: "all from a file", given: map[string]string{"kafka-config": config}, want: filed},
		{name: "flags win", given: map[string]string{"kafka-config": config, "brokers": "c:3", "client-id": "flag", "tls-ca": "own.pem", "sasl-user": "bob", "sasl": "plain"},
			want: change(func(s *summary) {
				s.Brokers, s.Client, s.Roots, s.User, s.SASL = []string{"c:3"}, "flag", "own.pem", "bob", saslPlain
			})},
		{name: "the environment's password wins over the file's", given: map[string]string{"kafka-config": config}, env: "from outside",
			want: change(func(s *summary) { s.Pass = "from outside" })},
		{name: "a flag's password file wins over both", given: map[string]string{"kafka-config": config, "sasl-password-file": pass}, env: "from outside",
			want: change(func(s *summary) { s.Pass = "from the file" })},

		{name: "no password", given: map[string]string{"brokers": "a:1", "sasl": "plain", "sasl-user": "u"}, err: "WEIR_SASL_PASSWORD"},
		{name: "no user", given: map[string]string{"brokers": "a:1", "sasl": "scram-sha-256"}, env: "x", err: "SASL SCRAM-SHA-256 needs a user"},
		{name: "no token", given: map[string]string{"brokers": "a:1", "sasl": "oauthbearer"}, env: "x", err: "--sasl-token-file"},
		{name: "a user without a mechanism", given: map[string]string{"brokers": "a:1", "sasl-user": "u"}, err: "name it with --sasl"},
		{name: "a password that all could read", given: map[string]string{"brokers": "a:1", "sasl": "plain", "sasl-user": "u"}, env: "x", err: "--sasl-without-tls"},
		{name: "no such file", given: map[string]string{"kafka-config": filepath.Join(dir, "none")}, err: "none: no such file"},
		{name: "no brokers anywhere", given: map[string]string{"kafka-config": write("little.conf", "client-id=x\n")}, err: "no broker is named"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(passwordEnv, tt.env)
			s, err := Connect(&knownParams{given: tt.given}).settings()
			if tt.err != "" {
				wantText(t, err, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := summarize(t, s); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestBadConfigFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kafka.conf")
	for _, tt := range []struct{ text, want string }{
		{"brokers\n", "line 1: it must be NAME=VALUE"},
		{"# x\n\nbroker=a:1\n", "line 3: there is no such setting; there are brokers, client-id"},
		{"brokers=a:1\nbrokers=b:2\n", "line 2: brokers is there for the second time"},
		{"brokers=\n", "line 1: brokers has no value"},
		{"bootstrap.servers=a:1\n", "line 1: bootstrap.servers is called brokers here"},
		{"sasl.jaas.config=" + canary + "\n", "is called sasl-user and sasl-password here"},
		{canary + "\n", "line 1"},
		{canary + "=" + canary + "\n", "line 1"},
		{"brokers=a:1\ntls=maybe\n", `tls is "maybe"; it must be true or false`},
		{"brokers=a:1\nsasl-without-tls=2\n", `sasl-without-tls is "2"`},
		{"brokers=a:1\nsasl=kerberos\n", "it must be one of oauthbearer, plain, scram-sha-256, scram-sha-512"},
		{"brokers=a:1\nsasl-password=" + canary + "\n", "name it with --sasl"},
		{"brokers=a\n", "it must be HOST:PORT"},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Connect(&knownParams{given: map[string]string{"kafka-config": path}}).client()
		wantText(t, err, tt.want)
		hides(t, fmt.Sprintf("the error about %q", tt.text), err.Error())
	}
}

// The program's own settings hold where no parameter says otherwise.
func TestConnectWithOptions(t *testing.T) {
	c := Connect(&knownParams{given: map[string]string{"brokers": "a:1"}}, Name("east"), Prefix("p-"), ClientID("mine"), TLSRoots("own.pem"),
		SASLScramSHA256("u", SecretText("p")))
	s, err := c.settings()
	if err != nil {
		t.Fatal(err)
	}
	want := summary{Brokers: []string{"a:1"}, Client: "mine", TLS: true, Roots: "own.pem", SASL: saslSHA256, User: "u", Pass: "p"}
	if got := summarize(t, s); !reflect.DeepEqual(got, want) || c.name != "east" || c.prefix != "p-" {
		t.Errorf("got %+v, %q, %q; want %+v", got, c.name, c.prefix, want)
	}
	if got := slices.Sorted(maps.Keys(mechanisms)); len(got) != 4 {
		t.Errorf("%d mechanisms: %v", len(got), got)
	}
}
