package privacy

import (
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// DefaultCache is the default of Config.Cache.
const DefaultCache = time.Minute

// Config says how private values are encrypted. The zero value encrypts nothing.
type Config struct {
	// Master wraps the keys. It is required to publish private values, and to reveal them.
	Master Master
	// Cache is how long a process remembers keys, and so for how long after an erasure it may still reveal
	// values that were published before; default DefaultCache. A negative value remembers nothing: each call
	// of Publish and of a sink then asks the database.
	Cache time.Duration
	// Rules are for types that programs insert with SQL, by type.
	Rules map[string]Rule
}

// Keyring encrypts and decrypts the private values of one outbox. It is safe for concurrent use.
type Keyring struct {
	store store.PrivateKeys
	c     Config
	rules map[string]rule

	ids      cache[*known] // by the id of a key
	subjects cache[*known] // by Subject; only keys of committed transactions

	loading sync.Mutex              // held while roots are read, which asks the master key
	lost    error                   // why others could not be, when they were read last
	known   atomic.Pointer[[]*root] // the roots that could be unwrapped, the oldest first

	mu       sync.Mutex
	proving  bool
	unproven map[string]string // the subjects of keys of transactions that may not be committed yet, by id
}

// known is a key of a subject.
type known struct {
	id   string
	aead cipher.AEAD // nil: it is erased
}

// root is a root key.
type root struct {
	id       string
	key      []byte
	wrap     cipher.AEAD // wraps keys of subjects
	subjects []byte      // the key of the hash of subjects
}

// New returns the keyring of an outbox. It connects to nothing; see Prepare. It fails with ErrConfig.
func New(keys store.PrivateKeys, c Config) (*Keyring, error) {
	if c.Cache == 0 {
		c.Cache = DefaultCache
	}
	k := &Keyring{store: keys, c: c, rules: make(map[string]rule, len(c.Rules)), unproven: make(map[string]string)}
	k.ids.lifetime, k.subjects.lifetime = max(0, c.Cache), max(0, c.Cache)
	var problems []error
	for _, typ := range slices.Sorted(maps.Keys(c.Rules)) {
		compiled, err := c.Rules[typ].compile()
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: rules.%s.%w", ErrConfig, typ, err))
		}
		k.rules[typ] = compiled
	}
	if len(c.Rules) > 0 && c.Master == nil {
		problems = append(problems, fmt.Errorf("%w: rules: there is no master key to encrypt with: set keys or master", ErrConfig))
	}
	return k, errors.Join(problems...)
}

// Prepare creates the root key if the outbox has none, in a separate transaction, and asks the master key to unwrap
// it. A program calls it before it publishes. It fails with ErrMaster if no root can be unwrapped for good.
func (k *Keyring) Prepare(ctx context.Context) error {
	_, err := k.usable(ctx, true)
	return err
}

// Check asks the master key to unwrap the root keys, if there are any, of which each must be usable. It fails with
// ErrMaster, or with an error of the store or the master key that may be over later.
func (k *Keyring) Check(ctx context.Context) error {
	k.loading.Lock()
	defer k.loading.Unlock()
	return k.loadAll(ctx)
}

// loadAll is load that also fails if only some roots can be unwrapped.
func (k *Keyring) loadAll(ctx context.Context) error {
	if err := k.load(ctx); err != nil {
		return err
	}
	return k.lost
}

// usable returns the roots that can be unwrapped, at least one. It creates one only if there is none at all.
func (k *Keyring) usable(ctx context.Context, create bool) ([]*root, error) {
	if roots := k.roots(); len(roots) > 0 {
		return roots, nil
	}
	k.loading.Lock()
	defer k.loading.Unlock()
	err := k.load(ctx)
	if roots := k.roots(); err != nil || len(roots) > 0 {
		return roots, err
	}
	if !create {
		return nil, fmt.Errorf("%w: the outbox has no root key: call Prepare before publishing", ErrConfig)
	}
	if k.c.Master == nil {
		return nil, fmt.Errorf("%w: there is no master key: set Config.Master", ErrConfig)
	}
	id, key := newID(), make([]byte, keyLength)
	rand.Read(key) // never fails
	made, err := k.wrapRoot(ctx, id, key)
	if err == nil {
		err = k.store.AddPrivateKeys(ctx, nil, []store.PrivateKey{made})
	}
	if err != nil {
		return nil, err
	}
	err = k.load(ctx) // others may have made one too
	return k.roots(), err
}

func (k *Keyring) roots() []*root {
	if roots := k.known.Load(); roots != nil {
		return *roots
	}
	return nil
}

// load reads the roots. It fails if there are some, but none can be unwrapped.
func (k *Keyring) load(ctx context.Context) error {
	stored, err := k.store.PrivateKeysOf(ctx, []string{""})
	if err != nil {
		return err
	}
	if k.c.Master == nil && len(stored) > 0 {
		return fmt.Errorf("%w: none is configured: set privacy.keys or privacy.master", ErrMaster)
	}
	var roots []*root
	var failed []error
	before := k.roots()
	for _, s := range stored {
		if r := withID(before, s.ID); r != nil {
			roots = append(roots, r)
			continue
		}
		wrapped, err := base64.StdEncoding.DecodeString(s.Wrapped)
		var key []byte
		if err == nil {
			key, err = k.c.Master.Unwrap(ctx, wrapped, []byte(s.ID), s.Under)
		}
		if err == nil && len(key) != keyLength {
			err = fmt.Errorf("%w: it returned %d bytes", ErrMaster, len(key))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("unwrap the root key %s: %w", s.ID, err))
			continue
		}
		roots = append(roots, newRoot(s.ID, key))
	}
	k.known.Store(&roots)
	k.lost = errors.Join(failed...)
	if len(roots) == 0 {
		return k.lost
	}
	return nil
}

func newRoot(id string, key []byte) *root {
	part := func(use string) []byte {
		derived, err := hkdf.Key(sha256.New, key, nil, "waybill "+use, keyLength) // RFC 5869
		if err != nil {
			panic(err) // only of more than 255 blocks
		}
		return derived
	}
	return &root{id: id, key: key, wrap: newAEAD(part("wrap")), subjects: part("subject")}
}

// hash returns what the database has instead of a subject.
func (r *root) hash(subject string) string {
	h := hmac.New(sha256.New, r.subjects)
	h.Write([]byte(subject))
	return hex.EncodeToString(h.Sum(nil))
}

func (k *Keyring) wrapRoot(ctx context.Context, id string, key []byte) (store.PrivateKey, error) {
	wrapped, name, err := k.c.Master.Wrap(ctx, key, []byte(id))
	return store.PrivateKey{ID: id, Wrapped: base64.StdEncoding.EncodeToString(wrapped), Under: name}, err
}

// Rotate wraps the root keys with the present master key. The older master key can be destroyed after it, and with it
// what backups from before have of the roots. Neither the log nor the keys of subjects are touched. It returns how many roots there are.
func (k *Keyring) Rotate(ctx context.Context) (int, error) {
	if err := k.Check(ctx); err != nil {
		return 0, err
	}
	roots, err := k.usable(ctx, false)
	for i, r := range roots {
		again, err := k.wrapRoot(ctx, r.id, r.key)
		if err == nil {
			err = k.store.RewrapPrivateKey(ctx, again)
		}
		if err != nil {
			return i, err
		}
	}
	return len(roots), err
}

// Subject returns what the database has instead of a subject, for each root key.
func (k *Keyring) Subject(ctx context.Context, subject string) ([]string, error) {
	k.loading.Lock()
	defer k.loading.Unlock()
	err := k.loadAll(ctx) // others may have made one, and an erasure must miss none
	return hashes(k.roots(), subject), err
}

func hashes(roots []*root, subject string) []string {
	all := make([]string, len(roots))
	for i, r := range roots {
		all[i] = r.hash(subject)
	}
	return all
}

// byID returns keys that the database has. Unknown ones are left out.
func (k *Keyring) byID(ctx context.Context, ids []string) (map[string]*known, error) {
	found := make(map[string]*known, len(ids))
	var missing []string
	for _, id := range ids {
		if key, is := k.ids.get(id); is {
			found[id] = key
		} else if !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	read, err := k.read(ctx, missing)
	maps.Copy(found, read)
	return found, err
}

// read returns keys as the database has them now, and remembers them.
func (k *Keyring) read(ctx context.Context, ids []string) (map[string]*known, error) {
	found := make(map[string]*known, len(ids))
	for few := range slices.Chunk(ids, mostKeys) {
		stored, err := k.store.PrivateKeysByID(ctx, few)
		if err != nil {
			return nil, err
		}
		for _, s := range stored {
			key, err := k.unwrap(ctx, s)
			if err != nil {
				return nil, err
			}
			found[s.ID] = key
			k.ids.put(s.ID, key)
		}
	}
	return found, nil
}

// mostKeys bounds the parameters of a statement.
const mostKeys = 500

func (k *Keyring) unwrap(ctx context.Context, s store.PrivateKey) (*known, error) {
	if s.Wrapped == "" {
		return &known{id: s.ID}, nil
	}
	under, err := k.root(ctx, s.Under)
	if err != nil {
		return nil, err
	}
	wrapped, err := base64.StdEncoding.DecodeString(s.Wrapped)
	if err == nil {
		wrapped, err = under.wrap.Open(nil, nil, wrapped, []byte(s.ID+" "+s.Subject))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the key %s was changed: restore the table of keys", ErrMaster, s.ID)
	}
	return &known{id: s.ID, aead: newAEAD(wrapped)}, nil
}

func (k *Keyring) root(ctx context.Context, id string) (*root, error) {
	if r := withID(k.roots(), id); r != nil {
		return r, nil
	}
	k.loading.Lock()
	defer k.loading.Unlock()
	if err := k.load(ctx); err != nil {
		return nil, err
	}
	if r := withID(k.roots(), id); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: the root key %s is not in the database, or its master key is not configured", ErrMaster, id)
}

func withID(roots []*root, id string) *root {
	for _, r := range roots {
		if r.id == id {
			return r
		}
	}
	return nil
}

// Sealing is a notification and its private values.
type Sealing struct {
	Envelope *notification.Envelope
	Values   []registry.PrivateValues
}

// Seal encrypts the private values of notifications, which it changes with their metadata, each under a key of its subject. Keys that are needed and not
// remembered are read in the caller's transaction, if that can be queried, and otherwise created in it: they exist
// if it commits. tx is nil outside of a transaction. It fails with ErrSubject, and leaves the notifications as they
// are then, or with an error of the database.
func (k *Keyring) Seal(ctx context.Context, tx store.Execer, all []Sealing) error {
	if len(all) == 0 {
		return nil
	}
	keys, err := k.keysFor(ctx, tx, all)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := seal(s, keys); err != nil {
			return fmt.Errorf("%s: %w", s.Envelope.Type, err)
		}
	}
	return nil
}

func seal(s Sealing, keys map[string]*known) error {
	e := s.Envelope
	payload, bound := e.Payload, boundTo(e)
	var used []string
	for _, values := range s.Values {
		key := keys[values.Subject]
		replace := func(to, value []byte) []byte {
			if !slices.Contains(used, key.id) {
				used = append(used, key.id)
			}
			return appendToken(to, key.id, key.aead, value, bound)
		}
		if isWhole(values.At) {
			payload = replace(nil, payload)
			continue
		}
		var err error
		if payload, err = edit(payload, values.At, replace); err != nil {
			return err
		}
	}
	if len(used) == 0 {
		return nil
	}
	e.Payload = payload
	e.Metadata[notification.MetadataPrivateKeys] = strings.Join(used, " ")
	if isWhole(s.Values[0].At) {
		e.Metadata[notification.MetadataContentType] = wholeContentType(e.Metadata.Get(notification.MetadataContentType))
	}
	return nil
}

func isWhole(at []registry.Pointer) bool { return len(at) == 1 && len(at[0]) == 0 }

// keysFor returns a key for each subject.
func (k *Keyring) keysFor(ctx context.Context, tx store.Execer, all []Sealing) (map[string]*known, error) {
	roots, err := k.usable(ctx, tx == nil)
	if err != nil {
		return nil, err
	}
	keys := make(map[string]*known)
	var added []store.PrivateKey
	for _, s := range all {
		for _, values := range s.Values {
			if values.Subject == "" {
				return nil, NoSubject(s.Envelope.Type)
			}
			if keys[values.Subject] != nil {
				continue
			}
			if key, is := k.subjects.get(values.Subject); is {
				keys[values.Subject] = key
				continue
			}
			key, found, err := k.stored(ctx, tx, hashes(roots, values.Subject))
			if err != nil {
				return nil, err
			}
			if !found {
				var row store.PrivateKey
				key, row = create(roots[0], values.Subject)
				added = append(added, row)
			}
			keys[values.Subject] = key
			k.prove(key.id, values.Subject)
		}
	}
	for few := range slices.Chunk(added, mostKeys) {
		if err := k.store.AddPrivateKeys(ctx, tx, few); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// stored looks for a key of a subject that the transaction sees.
func (k *Keyring) stored(ctx context.Context, tx store.Execer, subjects []string) (*known, bool, error) {
	q, can := tx.(store.RowQuerier)
	if tx != nil && !can {
		return nil, false, nil
	}
	row, found, err := k.store.PrivateKeyOf(ctx, q, subjects)
	if err != nil || !found {
		return nil, false, err
	}
	key, err := k.unwrap(ctx, row)
	return key, true, err
}

func create(under *root, subject string) (*known, store.PrivateKey) {
	key := make([]byte, keyLength)
	rand.Read(key) // never fails
	row := store.PrivateKey{ID: newID(), Subject: under.hash(subject), Under: under.id}
	row.Wrapped = base64.StdEncoding.EncodeToString(under.wrap.Seal(nil, nil, key, []byte(row.ID+" "+row.Subject)))
	return &known{id: row.ID, aead: newAEAD(key)}, row
}

// proofDelay is how long after its first use a key is looked for outside of the transaction that may have created it.
const proofDelay = time.Second

// prove remembers a key of a subject once its transaction is committed. One that is remembered too soon would encrypt
// values after its row was rolled back.
func (k *Keyring) prove(id, subject string) {
	if k.c.Cache < 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.unproven) >= maxCached {
		return
	}
	if k.unproven[id] = subject; !k.proving {
		k.proving = true
		time.AfterFunc(proofDelay, k.lookForProofs)
	}
}

// proofTime bounds a look.
const proofTime = 10 * time.Second

func (k *Keyring) lookForProofs() {
	k.mu.Lock()
	unproven := k.unproven
	k.unproven, k.proving = make(map[string]string), false
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), proofTime)
	defer cancel()
	found, err := k.read(ctx, slices.Collect(maps.Keys(unproven)))
	if err != nil {
		return // they are read again when they are needed
	}
	for id, key := range found {
		if key.aead != nil {
			k.subjects.put(unproven[id], key)
		}
	}
}
