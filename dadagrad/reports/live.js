
// Replaces the content of the page once a second, from the same address with "/content".
const place = location.pathname.replace(/\/$/, "") + "/content";
const main = document.getElementById("report");
async function update() {
  try {
    const answer = await fetch(place, {cache: "no-store"});
    if (answer.ok) main.innerHTML = await answer.text();
    document.body.classList.toggle("away", !answer.ok);
  } catch (error) {
    document.body.classList.add("away");
  }
  setTimeout(update, 1000);
}
setTimeout(update, 1000);
