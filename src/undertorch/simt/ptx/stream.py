"""The tokens of a file, read from the left."""

from dataclasses import dataclass

from undertorch.simt.errors import PtxError
from undertorch.simt.ptx.lexer import Token


@dataclass(slots=True)
class Stream:
    """Tokens with a place in them."""

    items: list[Token]
    at: int = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.items)

    def peek(self) -> Token:
        """The next token, which stays. Raises PtxError at the end of the text."""
        if self.done:
            line = self.items[-1].line if self.items else 1
            raise PtxError(f"PTX line {line}: the text ends in the middle of a statement.")
        return self.items[self.at]

    def next(self) -> Token:
        """The next token, taken."""
        token = self.peek()
        self.at += 1
        return token

    def before(self, count: int) -> str:
        """The text `count` tokens back."""
        return self.items[self.at - count].text if self.at >= count else ""

    def after(self, count: int) -> str:
        """The text `count` tokens ahead."""
        return self.items[self.at + count].text if self.at + count < len(self.items) else ""

    def kind_after(self, count: int) -> str:
        """The kind of the token `count` tokens ahead."""
        return self.items[self.at + count].kind if self.at + count < len(self.items) else ""

    def skip(self, text: str) -> bool:
        """Takes the next token if it reads `text`."""
        if not self.done and self.items[self.at].text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Takes the next token, which has to read `text`."""
        token = self.peek()
        if not self.skip(text):
            raise PtxError(f"PTX line {token.line}: {text!r} is missing before {token.text!r}.")

    def until(self, text: str) -> None:
        """Takes everything up to and with `text`."""
        while self.next().text != text:
            pass

    def skip_braces(self) -> None:
        """Takes a block in braces with all that it holds."""
        self.expect("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.next().text, 0)

    def text(self, start: int) -> str:
        """The tokens from `start` to here, as one line."""
        words = " ".join(token.text for token in self.items[start : self.at])
        for mark in (",", ";", "]", "+"):
            words = words.replace(f" {mark}", mark)
        return words.replace("[ ", "[").replace("@ ", "@").replace("! ", "!").replace("+ ", "+")
