"""The live page of a run, from this process and from Dask's scheduler, and in a browser."""

import json
import re
import shutil
import subprocess
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from distributed import Client
from helpers.processes import local_cluster
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad import InputError, TrainConfig, report, train
from dadagrad.reports import dashboard
from dadagrad.reports.dashboard import Dashboard, parse_address
from dadagrad.reports.dask_page import install

CONFIG = TrainConfig(step_size=0.3, passes=2, batch_size=10)
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
in_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: chromium)")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Update the page at the end of each round, and do not wait for those who look at it."""
    monkeypatch.setattr(dashboard, "SECONDS", 0.0)
    monkeypatch.setattr(dashboard, "LAST_SECONDS", 0.0)


def get(url):
    with urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        return str(answer.read().decode())


def test_the_page_goes_with_the_run_and_leaves_its_bits(tmp_path):
    data, seen = make_data(), []
    page = Dashboard()
    assert get(page.url).count("waiting") > 0

    def look(event):
        if event.steps == 12:
            seen.append(json.loads(get(page.url + "report.json")))
            seen.append(get(page.url + "content"))

    folder = str(tmp_path / "run")
    result = train(data, CONFIG, callbacks=[page, look], checkpoints=folder, save_every=4)
    assert result.model.digest == train(data, CONFIG).model.digest
    plain, content = seen
    assert plain["status"] == "running"
    assert plain["training"]["rows"] == plain["curve"]["rows"][-1]
    assert plain["training"]["rows_total"] == 2 * data.n_rows
    assert plain["training"]["nonzeros"] > 0
    assert {"read", "learn"} <= plain["training"]["seconds_by_part"].keys()
    assert {"Learning curve", "Checkpoints"} <= set(re.findall("<h2>([^<]*)", content))
    assert page.document["status"] == "complete"
    assert page.document["model"]["digest"] == result.model.digest
    with pytest.raises(URLError):
        get(page.url)


def test_an_open_page_gets_the_end_of_the_run(monkeypatch):
    monkeypatch.setattr(dashboard, "LAST_SECONDS", 10.0)
    page, last = Dashboard(), []

    def look(event):
        if event.steps == 1:
            get(page.url)
            fetch.start()

    def poll():
        while not last or "running" in last[-1]:
            time.sleep(0.02)
            last.append(get(page.url + "content"))

    fetch = threading.Thread(target=poll)
    train(make_data(), CONFIG, callbacks=[page, look])
    fetch.join(10)
    assert "Largest weights" in last[-1]


def test_the_loss_on_the_holdout_is_shown_after_each_pass():
    page, shown = Dashboard(), []

    def look(event):
        shown.append(dashboard.answer(page.document, "content")[1].decode())

    settings = {"step_size": 0.3, "batch_size": 10, "passes": 3, "holdout": 0.3}
    train(make_data((90, 80)), early_stopping=True, callbacks=[page, look], **settings)
    assert "<h2>Holdout</h2>" not in shown[0]
    assert "<h2>Holdout</h2>" in shown[-1]


def test_a_run_that_fails_says_so_and_only_three_paths_are_there():
    page = Dashboard()

    def fail(event):
        with pytest.raises(HTTPError):
            get(page.url + "../../etc/passwd")
        raise RuntimeError("<b>no space")

    with pytest.raises(RuntimeError):
        train(make_data(), CONFIG, callbacks=[page, fail])
    assert page.document["status"] == "failed"
    shown = dashboard.answer(page.document, "content")
    assert b"&lt;b&gt;no space" in shown[1]


def test_an_address_is_this_machine_unless_it_names_another_or_is_refused():
    for text, address in (
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:0", ("localhost", 0)),
    ):
        assert parse_address(text) == address
    for text in ("data.zarr", "1.2.3.4:99999", "http://x:80", ""):
        with pytest.raises(InputError, match="give HOST:PORT"):
            parse_address(text)
    taken = Dashboard()
    with pytest.raises(InputError, match="give another HOST:PORT"):
        Dashboard(taken.url.removeprefix("http://").rstrip("/"))
    taken.close()


def test_dask_shows_the_page_the_figures_and_the_workers(tmp_path):
    """Also after the loss of a worker, which sends no round twice."""
    url, seen = write_zarr(make_data((60, 50, 40, 70)), tmp_path / "data"), []
    cursors = []
    config = TrainConfig(step_size=0.3, streams=2, rounds=8, passes=2)
    with local_cluster(2, processes=False) as cluster, Client(cluster) as client:
        root = re.sub("/status$", "", client.dashboard_link).replace("0.0.0.0", "127.0.0.1")

        def look(event):
            if event.cursor.round == 3 and event.pass_number == 1:
                cluster.sync(cluster.workers[0].close, executor_wait=False)
            seen.append(json.loads(get(f"{root}/dadagrad/report.json")))
            cursors.append(event.cursor)

        result = train(url, config, client=client, callbacks=[Dashboard(), look])
        with urlopen(f"{root}/metrics", timeout=20) as answer:
            figures = answer.read().decode()
        page = get(f"{root}/dadagrad")
        content = get(f"{root}/dadagrad/content")
    assert result.model.digest == train(url, config).model.digest
    assert {each["status"] for each in seen} == {"running"}
    assert cursors == sorted(set(cursors))
    assert len(seen[0]["workers"]) == 2
    lists = [tuple(each["address"] for each in plain["workers"]) for plain in seen]
    assert len(set(lists)) > 1  # one was lost
    assert "merge" in seen[-1]["training"]["seconds_by_part"]
    assert "<script>" in page
    assert "Largest weights" in content
    assert "Workers" in content
    assert re.search(rf"(?m)^dadagrad_rows {float(result.report['rows'])}$", figures)
    assert 'dadagrad_part_seconds{part="learn"}' in figures


def test_the_menu_of_dask_has_a_link_to_the_page():
    pytest.importorskip("bokeh")
    with local_cluster(1, dashboard_address=":0") as cluster, Client(cluster) as client:
        root = f"http://127.0.0.1:{cluster.scheduler.http_server.port}"
        for _ in range(2):
            assert install(client)
        with urlopen(f"{root}/status", timeout=20) as answer:
            assert answer.read().count(b'href="dadagrad"') == 1


def dom(url):
    """The elements of a page after three seconds, as a browser has them."""
    words = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--virtual-time-budget=3000", "--dump-dom", url,
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.fixture
def served(tmp_path):
    """A web server of files, which writes one and returns its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def write(name, text):
        (tmp_path / name).write_text(text)
        return f"http://127.0.0.1:{server.server_address[1]}/{name}"

    yield write
    server.shutdown()
    server.server_close()


@in_browser
def test_a_report_fits_a_phone_and_a_desk(served):
    """No element is wider than the window, and every picture has a size."""
    result = train(make_data((90, 80)), loss="logistic", holdout=0.3, step_size=0.3)
    served("report.html", report(result))
    frames = "".join(
        f'<iframe src="report.html" width="{width}" height="900"></iframe>' for width in (400, 1280)
    )
    script = """<script>onload = () => { document.body.dataset.found = JSON.stringify(
      [...document.querySelectorAll("iframe")].map(frame => {
        const page = frame.contentDocument;
        return [frame.clientWidth, page.documentElement.scrollWidth,
          ...[...page.querySelectorAll("svg[role=img]")].map(e => e.getBoundingClientRect().width)];
      })) }</script>"""
    shown = dom(served("frames.html", f"<!doctype html><body>{frames}{script}"))
    found = re.search(r'data-found="([^"]*)"', shown)
    assert found is not None, shown[-500:]
    phone, desk = json.loads(found[1].replace("&quot;", '"'))
    assert (phone[0], desk[0]) == (400, 1280)
    for width, content_width, *pictures in (phone, desk):
        assert content_width <= width
        assert len(pictures) == 5
        assert all(250 < picture < width for picture in pictures)


@in_browser
def test_a_live_page_changes_without_a_reload():
    page = Dashboard()
    page.document = page.document | {"status": "running", "data": {"url": "before", "rows": 1}}

    def change():
        while page._seen is None:
            time.sleep(0.05)
        page.document = page.document | {"data": {"url": "after", "rows": 2}}

    thread = threading.Thread(target=change)
    thread.start()
    shown = dom(page.url)
    thread.join(10)
    page.close()
    assert "<h1>after" in shown
