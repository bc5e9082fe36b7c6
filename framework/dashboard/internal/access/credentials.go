package access

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"unicode"

	"golang.org/x/crypto/bcrypt"
)

// MinToken is the minimum length of a token in bytes.
const MinToken = 16

// maxCost limits the cost of a bcrypt hash: a comparison at cost 14 takes about a second.
const maxCost = 14

// users are the users who log in with a password.
//
// Each user has a proof of the password: a keyed hash, which is fast to compare and useless
// outside this process. A plain password has its proof from the start, a bcrypt hash from the first
// login on. If a password does not match the proof, bcrypt compares it. Unknown names are compared
// by bcrypt, too, so that the time of an answer does not reveal which names exist, as long as all
// hashes have the same cost.
type users struct {
	key      []byte
	byName   map[string]*user
	stranger *user
	attempts *attempts
	// comparing limits how many bcrypt comparisons run at once, since each takes a whole core.
	comparing chan struct{}
}

type user struct {
	User
	hash  []byte // by bcrypt; a hash that matches no password if the user's password is plain
	proof atomic.Pointer[[sha256.Size]byte]
}

func newUsers(credentials map[string]Credential, a *attempts) (*users, error) {
	u := &users{key: random(), byName: make(map[string]*user, len(credentials)), attempts: a, comparing: make(chan struct{}, 1)}
	if len(credentials) == 0 {
		return u, nil
	}
	cost := 0 // the highest cost of all hashes
	var faults []error
	for name, c := range credentials {
		if err := c.validate(); err != nil {
			faults = append(faults, fmt.Errorf("user %q %w", name, err))
		}
		if strings.Contains(name, ":") || strings.ContainsFunc(name, unicode.IsControl) || name == "" {
			faults = append(faults, fmt.Errorf("the user %q cannot log in: a name must be non-empty, without colons and control characters", name))
		}
		its := &user{User: User{Name: name, Role: c.Role}}
		if strings.HasPrefix(c.Secret, "$2") {
			its.hash = []byte(c.Secret)
			of, err := bcrypt.Cost(its.hash)
			if err != nil || of > maxCost || !hashed.MatchString(c.Secret) {
				faults = append(faults, fmt.Errorf("the password of user %q is not a bcrypt hash with a cost of at most %d", name, maxCost))
			}
			cost = max(cost, of)
		} else {
			proof := u.proof(name, c.Secret)
			its.proof.Store(&proof)
		}
		u.byName[name] = its
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	none, err := bcrypt.GenerateFromPassword(random(), cmp.Or(cost, bcrypt.DefaultCost))
	if err != nil {
		return nil, err
	}
	u.stranger = &user{hash: none}
	for _, its := range u.byName {
		if its.hash == nil {
			its.hash = none
		}
	}
	return u, nil
}

// hashed matches a bcrypt hash: version, cost, salt and hash.
var hashed = regexp.MustCompile(`^\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$`)

// proof returns the keyed hash of a name and a password.
func (u *users) proof(name, password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, u.key)
	h.Write([]byte(name + "\x00" + password))
	h.Sum(sum[:0])
	return sum
}

// user authenticates a name and a password.
func (u *users) user(ctx context.Context, from netip.Addr, name, password string) (User, error) {
	if len(u.byName) == 0 {
		return User{}, refuse(http.StatusUnauthorized, "no users are configured")
	}
	return u.attempts.try(from, func() (User, error) {
		its, known := u.byName[name]
		if !known {
			its = u.stranger
		}
		proof := u.proof(name, password)
		if proved := its.proof.Load(); proved != nil && hmac.Equal(proved[:], proof[:]) {
			return its.User, nil
		}
		select {
		case u.comparing <- struct{}{}:
			defer func() { <-u.comparing }()
		case <-ctx.Done():
			return User{}, ctx.Err()
		}
		if bcrypt.CompareHashAndPassword(its.hash, []byte(password)) == nil {
			its.proof.Store(&proof)
			return its.User, nil
		}
		cause := errors.New("a wrong name")
		if known { // do not log an unknown name: it may be a password in the wrong field
			cause = fmt.Errorf("a wrong password for %q", name)
		}
		return User{}, &refusal{status: http.StatusUnauthorized, text: "the name or the password is wrong", cause: cause, challenge: basicChallenge}
	})
}

// tokens are the tokens that programs send.
type tokens struct {
	all      []token
	attempts *attempts
}

type token struct {
	User
	sum [sha256.Size]byte
}

func newTokens(credentials map[string]Credential, a *attempts) (*tokens, error) {
	t := &tokens{attempts: a}
	var faults []error
	for name, c := range credentials {
		if err := c.validate(); err != nil {
			faults = append(faults, fmt.Errorf("token %q %w", name, err))
		} else if len(c.Secret) < MinToken {
			faults = append(faults, fmt.Errorf("token %q is too short: use at least %d characters", name, MinToken))
		}
		t.all = append(t.all, token{User{Name: name, Role: c.Role}, sha256.Sum256([]byte(c.Secret))})
	}
	return t, errors.Join(faults...)
}

// user authenticates a token.
func (t *tokens) user(from netip.Addr, secret string) (User, error) {
	if len(t.all) == 0 {
		return User{}, refuse(http.StatusUnauthorized, "no tokens are configured")
	}
	return t.attempts.try(from, func() (User, error) {
		sum, found := sha256.Sum256([]byte(secret)), User{}
		for _, its := range t.all {
			if subtle.ConstantTimeCompare(sum[:], its.sum[:]) == 1 {
				found = its.User
			}
		}
		if found.Role == NoRole {
			return User{}, &refusal{status: http.StatusUnauthorized, text: "the token is wrong", challenge: bearerChallenge}
		}
		return found, nil
	})
}

func (c Credential) validate() error {
	switch {
	case c.Secret == "":
		return errors.New("has no secret")
	case c.Role != Viewer && c.Role != Operator:
		return errors.New("has no role")
	}
	return nil
}

func random() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}
