package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Params are a job's parameters, which *cli.Params has: each is a flag and an
// environment variable.
type Params interface {
	Need(name, help string) string
	String(name, fallback, help string) string
	Choice(name, fallback string, values []string, help string) string
	Bool(name string, fallback bool, help string) bool
}

// passwordEnv holds the password, so that it is in no command line.
const passwordEnv = "WEIR_SASL_PASSWORD"

// mechanisms are the values of --sasl.
var mechanisms = map[string]string{
	"plain": saslPlain, "scram-sha-256": saslSHA256, "scram-sha-512": saslSHA512, "oauthbearer": saslToken,
}

// Connect declares the parameters of a connection and returns the cluster that
// they describe:
//
//	--brokers HOST:PORT,...     needed, unless --kafka-config names the brokers
//	--client-id NAME            the default is weir
//	--tls                       encrypt; implied by the other parameters for TLS
//	--tls-ca FILE               authorities, PEM; the default is the system's
//	--tls-cert FILE             the job's own certificate, PEM (mTLS)
//	--tls-key FILE              its key, PEM, unencrypted
//	--tls-server-name NAME      in brokers' certificates; the default is their host
//	--sasl MECHANISM            plain, scram-sha-256, scram-sha-512 or oauthbearer
//	--sasl-user NAME
//	--sasl-password-file FILE   or the environment variable WEIR_SASL_PASSWORD
//	--sasl-token-file FILE      for oauthbearer; read again at each session
//	--sasl-without-tls          send a password or token readable for everybody
//	--kafka-config FILE         the same names, one NAME=VALUE a line
//
// A password or token is never a parameter itself, because command lines are
// there for everybody to see.
//
// The file of --kafka-config is text. Lines that are empty or begin with # are
// skipped; a value is what stands behind the first =, without blanks around it, and
// has no quotes and no escapes. Its names are those above, without the dashes;
// true turns a switch on. It may also hold sasl-password, and should then be
// readable for nobody else. Files that it names are looked for beside it. What a
// flag or the environment gives wins over the file; a switch that the file turns on
// can't be turned off again by a flag.
//
// Files are read when the job connects; Connect itself only declares. opts are
// settings of the program's own, such as [Name] and [Prefix]; those about brokers,
// TLS and logins stand back behind the parameters.
func Connect(p Params, opts ...ClusterOption) *Cluster {
	file := p.String("kafka-config", "", "file of settings for the connection to Kafka, one NAME=VALUE a line, named like these parameters")
	const brokersHelp = "addresses of Kafka brokers, as HOST:PORT,HOST:PORT; one is enough to find the others"
	given := map[string]string{}
	if file == "" {
		given["brokers"] = p.Need("brokers", brokersHelp)
	} else {
		given["brokers"] = p.String("brokers", "", brokersHelp)
	}
	for _, d := range []struct{ name, help string }{
		{"client-id", "name that Kafka brokers know the job by; empty: weir"},
		{"tls-ca", "PEM file of the authorities that sign brokers' certificates; empty: the system's. Turns TLS on"},
		{"tls-cert", "PEM file of the job's own certificate, for brokers that ask for one. Turns TLS on"},
		{"tls-key", "PEM file of its key, unencrypted"},
		{"tls-server-name", "name that brokers' certificates are for; empty: the host of each address. Turns TLS on"},
		{"sasl-user", "user that the job logs in as"},
		{"sasl-password-file", "file that holds the password; it may also be in the environment variable " + passwordEnv},
		{"sasl-token-file", "file that holds the token of oauthbearer; it is read again at each session"},
	} {
		given[d.name] = p.String(d.name, "", d.help)
	}
	if p.Bool("tls", false, "encrypt the connection to Kafka, and check brokers' certificates") {
		given["tls"] = "true"
	}
	if kind := p.Choice("sasl", "none", []string{"none", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"}, "how the job logs in to Kafka"); kind != "none" {
		given["sasl"] = kind
	}
	if p.Bool("sasl-without-tls", false, "allow a password or a token to be sent where everybody on the network can read it") {
		given["sasl-without-tls"] = "true"
	}
	c := NewCluster(nil, opts...)
	c.named, c.file = given, file
	return c
}

// fileNames are the settings of a file, and of the parameters but for the last.
var fileNames = []string{
	"brokers", "client-id", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name",
	"sasl", "sasl-user", "sasl-password-file", "sasl-token-file", "sasl-without-tls", "sasl-password",
}

// otherNames are what Kafka's own clients call the same.
var otherNames = map[string]string{
	"bootstrap.servers": "brokers", "metadata.broker.list": "brokers", "client.id": "client-id",
	"security.protocol": "tls or sasl", "sasl.mechanism": "sasl", "sasl.mechanisms": "sasl",
	"sasl.username": "sasl-user", "sasl.password": "sasl-password", "sasl.jaas.config": "sasl-user and sasl-password",
	"ssl.ca.location": "tls-ca", "ssl.truststore.location": "tls-ca, as PEM", "ssl.certificate.location": "tls-cert",
	"ssl.key.location": "tls-key", "ssl.keystore.location": "tls-cert and tls-key, as PEM",
}

// readConfig reads a file of settings.
func readConfig(path string) (map[string]string, error) {
	b, err := readSmall(path)
	if err != nil {
		return nil, fmt.Errorf("read the settings of --kafka-config: %w", err)
	}
	values := map[string]string{}
	line := 0
	for text := range strings.SplitSeq(string(b), "\n") {
		line++
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		// No message shows the line: it may hold a password.
		name, value, ok := strings.Cut(text, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok:
			return nil, fmt.Errorf("%s, line %d: it must be NAME=VALUE", path, line)
		case otherNames[name] != "":
			return nil, fmt.Errorf("%s, line %d: %s is called %s here", path, line, name, otherNames[name])
		case !slices.Contains(fileNames, name):
			return nil, fmt.Errorf("%s, line %d: there is no such setting; there are %s", path, line, strings.Join(fileNames, ", "))
		case value == "":
			return nil, fmt.Errorf("%s, line %d: %s has no value", path, line, name)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("%s, line %d: %s is there for the second time", path, line, name)
		}
		if slices.Contains([]string{"tls-ca", "tls-cert", "tls-key", "sasl-password-file", "sasl-token-file"}, name) && !filepath.IsAbs(value) {
			value = filepath.Join(filepath.Dir(path), value)
		}
		values[name] = value
	}
	return values, nil
}

// fill sets what the parameters name, and what a file does where they don't.
func (s *settings) fill(named map[string]string, file string) error {
	v := map[string]string{}
	if file != "" {
		var err error
		if v, err = readConfig(file); err != nil {
			return err
		}
	}
	fromFile := maps.Clone(v)
	for name, value := range named {
		v[name] = cmp.Or(value, v[name])
	}
	if v["brokers"] != "" {
		s.brokers = strings.Split(v["brokers"], ",")
		for i, b := range s.brokers {
			s.brokers[i] = strings.TrimSpace(b)
		}
	}
	s.clientID = cmp.Or(v["client-id"], s.clientID)
	if err := s.fillTLS(v); err != nil {
		return err
	}
	return s.fillSASL(v, named, fromFile)
}

func (s *settings) fillTLS(v map[string]string) error {
	on, err := boolOf(v, "tls")
	if err != nil {
		return err
	}
	t := &s.tls
	t.roots, t.cert, t.key = cmp.Or(v["tls-ca"], t.roots), cmp.Or(v["tls-cert"], t.cert), cmp.Or(v["tls-key"], t.key)
	t.serverName = cmp.Or(v["tls-server-name"], t.serverName)
	t.on = t.on || on || t.roots != "" || t.cert != "" || t.key != "" || t.serverName != ""
	return nil
}

func (s *settings) fillSASL(v, named, fromFile map[string]string) error {
	inClear, err := boolOf(v, "sasl-without-tls")
	if err != nil {
		return err
	}
	l := &s.sasl
	l.inClear = l.inClear || inClear
	if v["sasl"] == "" {
		for _, name := range []string{"sasl-user", "sasl-password-file", "sasl-token-file", "sasl-password"} {
			if v[name] != "" && l.kind == noSASL {
				return fmt.Errorf("there is a %s, and no mechanism to log in by: name it with --sasl", name)
			}
		}
		return nil
	}
	kind, ok := mechanisms[v["sasl"]]
	if !ok {
		return fmt.Errorf("sasl is %q; it must be one of %s", v["sasl"], strings.Join(slices.Sorted(maps.Keys(mechanisms)), ", "))
	}
	l.kind, l.user, l.secret = kind, v["sasl-user"], Secret{}
	if kind == saslToken {
		if v["sasl-token-file"] == "" {
			return errors.New("SASL OAUTHBEARER needs a token: name its file with --sasl-token-file")
		}
		l.secret = SecretFile(v["sasl-token-file"])
		return nil
	}
	env := SecretEnv(passwordEnv)
	switch _, err := env.get(context.Background()); {
	case named["sasl-password-file"] != "":
		l.secret = SecretFile(named["sasl-password-file"])
	case err == nil:
		l.secret = env
	case fromFile["sasl-password-file"] != "":
		l.secret = SecretFile(fromFile["sasl-password-file"])
	case fromFile["sasl-password"] != "":
		l.secret = SecretText(fromFile["sasl-password"])
	default:
		return fmt.Errorf("SASL %s needs a password: put it into the environment variable %s, or name its file with --sasl-password-file", kind, passwordEnv)
	}
	return nil
}

func boolOf(v map[string]string, name string) (bool, error) {
	if v[name] == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v[name])
	if err != nil {
		return false, fmt.Errorf("%s is %q; it must be true or false", name, v[name])
	}
	return b, nil
}
