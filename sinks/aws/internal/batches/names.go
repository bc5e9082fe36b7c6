package batches

import (
	"crypto/sha256"
	"encoding/hex"
)

// ID returns a text if it is legal as the id of a message or a group in SQS and SNS: up to 128 letters, digits and
// punctuation of ASCII. Otherwise it returns the SHA-256 of the text in hexadecimal, so that the same text has the same
// id, and another text another one.
func ID(text string) string {
	legal := text != "" && len(text) <= 128
	for i := 0; legal && i < len(text); i++ {
		legal = '!' <= text[i] && text[i] <= '~'
	}
	if legal {
		return text
	}
	return Digest(text)
}

// Digest returns the SHA-256 of a text in hexadecimal.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
