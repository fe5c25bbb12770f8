"""The screenshots of the console in its documentation, and the program that compresses them."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from docs.png import smaller
from tests.browser import Chromium

DOCS = Path(__file__).parents[3] / "docs"
LIMIT_BYTES = 150 * 1024
PICTURES = re.findall(
    r"image:: (\S+)", (DOCS / "howto" / "console.rst").read_text(encoding="utf-8")
)

#: Script that returns the pixels of a picture, as a browser decodes them.
COLOURS = """new Promise((done, failed) => {
    const image = new Image();
    image.onerror = () => failed('not a picture');
    image.onload = () => {
        const canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [image.width, image.height];
        const context = canvas.getContext('2d');
        context.drawImage(image, 0, 0);
        done([...context.getImageData(0, 0, image.width, image.height).data]);
    };
    image.src = 'data:image/png;base64,%s';
})"""


@pytest.mark.parametrize("picture", PICTURES)
def test_picture_is_there_and_small(picture: str) -> None:
    data = (DOCS / "howto" / picture).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < LIMIT_BYTES


def test_every_picture_is_shown() -> None:
    made = {f"../pictures/{path.name}" for path in DOCS.glob("pictures/console-*.png")}
    assert made == set(PICTURES)


def test_picture_of_few_colours_loses_nothing(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<body style='background: #123'><p style='color: red'>Some text</p>")
    browser.open(page, width=120, height=60)
    shot = browser.screenshot()
    small = smaller(shot)
    before, after = (
        browser.ask(COLOURS % base64.b64encode(data).decode()) for data in (shot, small)
    )
    assert len(small) < len(shot)
    assert before == after


def test_what_is_no_png_is_refused() -> None:
    with pytest.raises(ValueError, match="PNG"):
        smaller(b"GIF89a")
