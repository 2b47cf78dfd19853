"""Objects that a `with` statement closes."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Context manager that closes itself at its end."""

    @abstractmethod
    def close(self) -> None:
        """Give up what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
